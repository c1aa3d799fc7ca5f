"""What the client programs of the tests do, whatever the library: the steps and what must come of them.

A library's module has `roundtrip`, `group`, `transactions` and `admin`, each of which takes an Access and a
topic name and returns what the program got to know. What it must be is known from what was sent, here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

PARTITIONS = 3
STEP = 60
"""Messages in each step of the group program."""
_PATIENCE_S = 40
_SETTLED_S = 10


@dataclass(frozen=True)
class Access:
    """How a client gets at a broker, as its user would write it into its configuration."""

    bootstrap: str
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    ca: Path | None = None
    """The authority to trust, where the protocol is SSL."""


def eventually(read: Callable[[], Any], wanted: Any) -> Any:
    """What `read` gives once it is `wanted`, else at last: brokers hear of a change one by one."""
    end = time.monotonic() + _SETTLED_S
    while (found := read()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found


class Member(Protocol):
    """A consumer in a group."""

    def poll(self) -> list[bytes]:
        """The values of the messages that came within a moment."""

    def assigned(self) -> int:
        """How many partitions it has now."""

    def commit(self) -> None: ...

    def close(self) -> None: ...


def values(step: int) -> list[bytes]:
    """Distinct, some of them larger than a packet."""
    return [b"%d/%d " % (step, number) + b"x" * (number * 37 % 4000) for number in range(STEP)]


def in_group(produce: Callable[[Sequence[bytes]], None], join: Callable[[], Member]) -> list[bytes]:
    """One member, then two, then one again; messages in each phase. What all members received."""
    received: list[bytes] = []

    def poll_until(members: Sequence[Member], done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{what}: {len(received)} messages, {[m.assigned() for m in members]} partitions"
                )
            for member in members:
                received.extend(member.poll())

    def phase(step: int, members: Sequence[Member]) -> None:
        produce(values(step))
        poll_until(members, lambda: len(received) >= (step + 1) * STEP, f"messages of step {step}")
        for member in members:
            member.commit()

    first = join()
    poll_until([first], lambda: first.assigned() == PARTITIONS, "the first member joins")
    phase(0, [first])
    second = join()
    both = [first, second]
    poll_until(
        both,
        lambda: second.assigned() > 0 and first.assigned() + second.assigned() == PARTITIONS,
        "two share",
    )
    phase(1, both)
    second.close()
    poll_until([first], lambda: first.assigned() == PARTITIONS, "one remains")
    phase(2, [first])
    first.close()
    return sorted(received)


GROUP_EXPECTED = sorted(value for step in range(3) for value in values(step))

# Three transactions, the second of which is aborted.
COMMITTED, ABORTED, COMMITTED_TOO = values(0), values(1), values(2)
TRANSACTIONS_EXPECTED = {
    "read_committed": sorted(COMMITTED + COMMITTED_TOO),
    "read_uncommitted": sorted(COMMITTED + ABORTED + COMMITTED_TOO),
    "offset sent": 17,
}
