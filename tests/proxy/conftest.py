"""`run`: a test in an event loop, once with asyncio's own and once with uvloop, which the command prefers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from standing import Main, Result, Run

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
_MOST_S = 20


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def run(main: Main[Result]) -> Result:
        async def limited() -> Result:
            async with asyncio.timeout(_MOST_S):
                return await main()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(limited())

    return run
