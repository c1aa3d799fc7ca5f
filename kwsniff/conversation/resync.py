"""The next frame boundary in a stream whose boundary was lost, or never seen.

A gap, a bad size or a capture that begins mid-stream leaves bytes without a known start. What is looked for
is a frame that cannot be there by chance: a request whose header and whole body decode, a response that
carries the correlation id of a waiting request and decodes as its answer. Where a chunk begins, a header
alone may do, because senders begin frames where they begin segments. Pure functions over one contiguous run
of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from kwsniff.conversation import detect
from kwsniff.conversation.headers import RequestHeader, maybe_request_header
from kwsniff.wire import kafka07

RUN_LIMIT = 2 * 1024 * 1024
"""Bytes that are kept in the hope that a frame which began in them becomes whole."""
_MANY_IDS = 256
"""Correlation ids from which on one slow pass over the run is cheaper than a fast one for each."""
_HEAD = 2048
"""Bytes in which a header must lie: whole frames are copied out of the run only when theirs convinces."""

_REQUEST_SHAPE = re.compile(
    rb"(?s)(?!\x00\x00\x00[\x00-\x07])"  # no header in fewer bytes; runs of zeros are common
    rb"(?=[\x00-\x06]...\x00[\x00-\x7f]\x00[\x00-\x1f]....(?:\xff\xff|\x00.))"
)


class Found(NamedTuple):
    """at: where the next frame begins, None if not known yet; keep: nothing before it can be a start."""

    at: int | None
    keep: int


def find_request(
    run: bytes, starts: Collection[int], client_ids: Collection[str | None], *, strict: bool, ended: bool
) -> Found:
    """The first sure request in `run`. strict: only a whole one that decodes will do."""
    keep = len(run)
    for at in _request_starts(run, starts):
        end = at + 4 + int.from_bytes(run[at : at + 4], "big")
        header = maybe_request_header(run[at + 4 : min(end, at + 4 + _HEAD)])
        if header is None or not detect.known(header) or not _is_ours(header, client_ids):
            continue
        if end <= len(run):
            if detect.decodes(run[at + 4 : end], header):
                return Found(at, at)
        elif at in starts and not strict:
            return Found(at, at)
        elif not ended:
            keep = min(keep, at)
    return Found(None, min(keep, max(len(run) - 14, 0)))


def find_named_request(run: bytes, starts: Iterable[int]) -> Found:
    """The first chunk start with a known request header whose client id looks like one."""
    for at in starts:
        header = maybe_request_header(run[at + 4 : at + 4 + _HEAD])
        if header is not None and detect.known(header) and detect.is_client_id(header.client_id):
            return Found(at, at)
    return Found(None, len(run))


def find_request07(run: bytes, starts: Iterable[int]) -> Found:
    """The first sure request of Kafka 0.7; looked for only where chunks begin."""
    for at in starts:
        size = int.from_bytes(run[at : at + 4], "big")
        frame = run[at + 4 : at + 4 + size]
        if 0 < size == len(frame) and kafka07.looks_like_request(frame):
            return Found(at, at)
    return Found(None, 0)


def find_response(
    run: bytes,
    starts: Sequence[int],
    waiting: Iterable[int],
    answers: Callable[[bytes], bool],
    max_frame: int,
) -> Found:
    """The first frame in `run` with the id of a waiting request that `answers` it.

    Nothing may be dropped before it is found: frames that lead up to it are responses too, if unmatched.
    """
    at_starts = set(starts)
    for at in sorted(_id_places(run, waiting)):
        size = int.from_bytes(run[at : at + 4], "big")
        if not 4 <= size <= max_frame:
            continue
        end = at + 4 + size
        if answers(run[at + 4 : end]) if end <= len(run) else at in at_starts:
            return Found(chain_start(run, starts, at), at)
    return Found(None, 0)


def chain_start(run: bytes, starts: Iterable[int], end: int) -> int:
    """The earliest chunk start from which size prefixes lead exactly to `end`; else `end` itself."""
    for start in starts:
        at = start
        while at + 8 <= end:
            size = int.from_bytes(run[at : at + 4], "big")
            if size < 4:
                break
            at += 4 + size
        if at == end:
            return start
    return end


def _request_starts(run: bytes, starts: Collection[int]) -> Iterator[int]:
    for match in _REQUEST_SHAPE.finditer(run):
        yield match.start()
    # A header that the run's end cuts short fits no shape yet.
    yield from (at for at in starts if len(run) - at < 14)


def _id_places(run: bytes, waiting: Iterable[int]) -> Iterator[int]:
    wanted = {correlation_id.to_bytes(4, "big", signed=True) for correlation_id in waiting}
    if len(wanted) > _MANY_IDS:
        yield from (at - 4 for at in range(4, len(run) - 3) if run[at : at + 4] in wanted)
        return
    for correlation_id in wanted:
        at = run.find(correlation_id, 4)
        while at >= 0:
            yield at - 4
            at = run.find(correlation_id, at + 1)


def _is_ours(header: RequestHeader, client_ids: Collection[str | None]) -> bool:
    if client_ids:
        return header.client_id in client_ids
    return header.client_id is None or header.client_id == "" or detect.is_client_id(header.client_id)
