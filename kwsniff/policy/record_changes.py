"""Records of a body, redacted or with wrong checksums; topics renamed. Bodies are changed in place.

In: a message's name, version and body. Out: whether anything was changed. Batches are unpacked and packed
again with their codec; lengths and CRCs are right again behind `redact`, and wrong behind `break_crc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import lru_cache

from kwsniff.errors import DecodeError
from kwsniff.model import Body
from kwsniff.policy.ruleset import RedactRecords
from kwsniff.wire import records, walk

REDACTED = b"<redacted>"
_MARKERS = (b"\0\0\0\0", b"\0\0\0\1")
"""Version 0; ABORT and COMMIT."""
_CRC_AT = {0: 12, 1: 12, 2: 17}


@lru_cache(maxsize=256)
def _pattern(topics: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, topics)) if topics else ".*", re.DOTALL)


def redact(
    name: str, version: int, body: Body, wanted: RedactRecords, topic_name: Callable[[str], str]
) -> bool:
    """Keys and values become `<redacted>`, so do the values of headers; null stays null.

    A topic whose name is not known is redacted, too. The cut-off batch at the end of a Fetch response is left
    out. DecodeError: there are records that cannot be read.
    """
    changed = False
    pattern = _pattern(wanted.topics)
    for (path, holder, key), topic, topic_id in walk.topic_records(name, version, body):
        known = topic or (topic_name(topic_id) if topic_id else None)
        if known is not None and known != topic_id and pattern.match(known) is None:
            continue
        data = holder[key]
        if not data:
            continue
        try:
            entries = records.decode_records(data)
        except DecodeError as error:
            raise DecodeError(
                error.reason, error.message, path=path + error.path, offset=error.offset
            ) from None
        for entry in entries:
            for record in entry["records"]:
                if not (entry.get("isControl") and _is_marker(record)):
                    _hide(record, wanted)
        holder[key] = records.encode_records(entries)
        changed = True
    return changed


def _is_marker(record: Body) -> bool:
    """Whether it is the end of a transaction, as brokers write it (KIP-98): nothing that a producer has said.

    The flag of the batch alone proves nothing.
    """
    key, value = record["key"], record["value"]
    return key in _MARKERS and value is not None and len(value) == 6 and not record["headers"]


def _hide(record: Body, wanted: RedactRecords) -> None:
    for part, hidden in (("key", wanted.keys), ("value", wanted.values)):
        if hidden and record[part] is not None:
            record[part] = REDACTED
    for header in record["headers"] if wanted.headers else ():
        if header["value"] is not None:
            header["value"] = REDACTED


def break_crc(name: str, version: int, body: Body) -> bool:
    """Turns every bit of the CRC of every batch and message."""
    changed = False
    for _, holder, key in walk.records(name, version, body):
        data = bytearray(holder[key])
        for found in records.Scan(bytes(data)).bounds():
            if isinstance(found, DecodeError):
                break
            at = found.at + _CRC_AT[found.magic]
            data[at : at + 4] = bytes(byte ^ 0xFF for byte in data[at : at + 4])
            changed = True
        holder[key] = bytes(data)
    return changed


class Names:
    """What a request was told differently about its topics, to be told back in its answer: last first."""

    def __init__(self, rule: str = "") -> None:
        self.rule = rule
        """The first that did."""
        self._told: list[dict[str, list[str]]] = []
        """Of each rule: broker's name -> the client's; several where several topics got one name."""

    def renamed(self, changes: Iterable[tuple[str, str]]) -> None:
        """(client's name, broker's) of each place; an answer mentions them in the same order."""
        back: dict[str, list[str]] = {}
        for old, new in changes:
            back.setdefault(new, []).append(old)
        if back:
            self._told.append(back)

    def back(self, name: str, version: int, body: Body) -> bool:
        """Gives an answer the client's names."""
        changed = False
        for told in reversed(self._told):
            changed = rename(name, version, body, _in_turn(told)) or changed
        return changed


def _in_turn(told: dict[str, list[str]]) -> Callable[[str], str]:
    turns = {new: iter(olds) for new, olds in told.items()}

    def own(topic: str) -> str:
        return next(turns[topic], told[topic][-1]) if topic in turns else topic

    return own


def rename(name: str, version: int, body: Body, own: Callable[[str], str]) -> bool:
    """Every name of a topic, by the schema."""
    changed = False
    for _, holder, key in walk.topic_places(name, version, body):
        value = holder[key]
        if isinstance(value, list):
            new: object = [own(item) for item in value]
        else:
            new = own(value)
        changed = changed or new != value
        holder[key] = new
    return changed
