"""The JSON line's contract, key by key: what `problems(line)` finds is not allowed in the log."""

from __future__ import annotations

import re
from typing import Any

from kwsniff.errors import Reason

INT, TEXT, LIST, MAP, BOOL = (int,), (str,), (list,), (dict,), (bool,)
NULL = (type(None),)
NUMBER = (int, float)
EXCHANGE = {
    "timestamp": TEXT,
    "requestHeader": MAP + NULL,
    "request": MAP + NULL,
    "response": MAP + NULL,
    "connection": TEXT,
    "totalTimeMs": NUMBER + NULL,
    "throttleTimeMs": INT,
    "securityProtocol": TEXT + NULL,
    "principal": TEXT + NULL,
    "clientInformation": MAP,
    "kwsniff": MAP,
}
HEADER = {
    "requestApiKey": INT + NULL,
    "requestApiKeyName": TEXT + NULL,
    "requestApiVersion": INT + NULL,
    "correlationId": INT + NULL,
    "clientId": TEXT + NULL,
    "requestApiVersionDeprecated": BOOL,
}
CLIENT = {"softwareName": TEXT, "softwareVersion": TEXT}
KWSNIFF = {
    "outcome": TEXT,
    "client": TEXT,
    "broker": TEXT,
    "session": INT,
    "protocol": TEXT,
    "requestBytes": INT + NULL,
    "responseBytes": INT + NULL,
    "file": TEXT,
    "requestPacket": INT + NULL,
    "responsePacket": INT + NULL,
    "topics": LIST,
    "groupId": TEXT + NULL,
    "errors": LIST,
    "tags": LIST,
    "faults": LIST,
}
KWSNIFF_MORE = {"fetched": LIST, "rawStrings": MAP}
ERROR = {"code": INT, "name": TEXT + NULL, "topic": TEXT + NULL, "partition": INT + NULL}
FAULT_LINE = {"timestamp": TEXT + NULL, "connection": TEXT + NULL, "kwsniff": MAP}
FAULT_EXTRA = {
    "file": TEXT + NULL,
    "session": INT + NULL,
    "client": TEXT + NULL,
    "broker": TEXT + NULL,
    "fault": MAP,
}
FAULT = {
    "reason": TEXT,
    "message": TEXT,
    "side": TEXT + NULL,
    "api": INT + NULL,
    "version": INT + NULL,
    "correlationId": INT + NULL,
    "path": TEXT + NULL,
    "offset": INT + NULL,
    "packet": INT + NULL,
    "lost": INT + NULL,
    "fileOffset": INT + NULL,
}
OUTCOMES = {"answered", "no_ack", "lost", "closed", "unmatched"}
PROTOCOLS = {"kafka", "kafka07", "sasl"}
REASONS = {str(reason) for reason in Reason}
SUMMARY = ["batches", "records", "codecs", "magics", "baseOffset", "lastOffset", "crcErrors"]
RECORD = {"offset", "timestamp", "key", "value", "headers"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
_END = re.compile(r"(\[[0-9a-f:.]+\]|[0-9.]+):\d+")


def problems(line: dict[str, Any]) -> list[str]:
    """What is wrong with one line; nothing: []."""
    found: list[str] = []
    if "fault" in line.get("kwsniff", {}):
        found += _shape(line, FAULT_LINE, "line") + _shape(line["kwsniff"], FAULT_EXTRA, "kwsniff")
        found += _fault(line["kwsniff"]["fault"], "fault")
        if not _TIME.fullmatch(line["timestamp"] or "") and not _timeless(line):
            found.append(f"timestamp {line['timestamp']}")
        return found
    found += _shape(line, EXCHANGE, "line")
    extra = line["kwsniff"]
    found += _shape({k: v for k, v in extra.items() if k not in KWSNIFF_MORE}, KWSNIFF, "kwsniff")
    found += _shape(line["clientInformation"], CLIENT, "clientInformation")
    if line["requestHeader"] is not None:
        found += _shape(line["requestHeader"], HEADER, "requestHeader")
    found += [] if _TIME.fullmatch(line["timestamp"]) else [f"timestamp {line['timestamp']}"]
    found += [] if extra["outcome"] in OUTCOMES else [f"outcome {extra['outcome']}"]
    found += [] if extra["protocol"] in PROTOCOLS else [f"protocol {extra['protocol']}"]
    found += [f"{end} {extra[end]}" for end in ("client", "broker") if not _END.fullmatch(extra[end])]
    if line["connection"] != f"{extra['broker']}-{extra['client']}-{extra['session']}":
        found.append(f"connection {line['connection']}")
    for i, error in enumerate(extra["errors"]):
        found += _shape(error, ERROR, f"errors[{i}]")
        found += ["error 0"] if error["code"] == 0 else []
    for i, fault in enumerate(extra["faults"]):
        found += _fault(fault, f"faults[{i}]")
    found += _by_outcome(line)
    for side in ("request", "response"):
        found += _records(line[side], side)
    return found


def _timeless(line: dict[str, Any]) -> bool:
    """A file that breaks where no packet has told a time: none is invented."""
    return line["timestamp"] is None and line["connection"] is None


def _by_outcome(line: dict[str, Any]) -> list[str]:
    extra, found = line["kwsniff"], []
    asked = extra["requestBytes"] is not None, extra["requestPacket"] is not None
    answered = extra["responseBytes"] is not None, extra["responsePacket"] is not None
    if len(set(asked)) != 1 or len(set(answered)) != 1:
        found.append("bytes and packet of a side do not agree")
    if extra["outcome"] == "unmatched" and (asked[0] or line["request"] is not None):
        found.append("unmatched with a request")
    if extra["outcome"] == "answered" and not (asked[0] and answered[0]):
        found.append("answered without both")
    if extra["outcome"] in ("lost", "closed") and answered[0]:
        found.append(f"{extra['outcome']} with an answer")
    if (line["totalTimeMs"] is None) != (not (asked[0] and answered[0])):
        found.append(f"totalTimeMs {line['totalTimeMs']}")
    if extra["protocol"] == "kafka07" and (
        line["requestHeader"] is None
        or any(
            line["requestHeader"][k] is not None for k in ("requestApiVersion", "correlationId", "clientId")
        )
    ):
        found.append("a 0.7 header with what 0.7 does not have")
    if extra["protocol"] == "sasl" and line["requestHeader"] is not None:
        found.append("a bare token with a header")
    return found


def _fault(fault: dict[str, Any], where: str) -> list[str]:
    found = _shape(fault, FAULT, where)
    if fault["reason"] not in REASONS or not re.fullmatch("[a-z_]+", fault["reason"]):
        found.append(f"{where}.reason {fault['reason']}")
    if fault["side"] not in (None, "request", "response"):
        found.append(f"{where}.side {fault['side']}")
    return found


def _records(value: Any, path: str) -> list[str]:
    """Wherever a records field was: its size and summary, or its batches."""
    found: list[str] = []
    pending = [(path, value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, list):
            pending += [(f"{path}[{i}]", item) for i, item in enumerate(value)]
        elif isinstance(value, dict):
            pending += [(f"{path}.{key}", item) for key, item in value.items()]
            for key, item in value.items():
                if key.endswith("Summary") and f"{key[:-7]}SizeInBytes" in value and list(item) != SUMMARY:
                    found.append(f"{path}.{key} has {list(item)}")
                if key == "records" and isinstance(item, list) and "codec" in value:
                    found += [f"{path}: {set(r)}" for r in item if not set(r) >= RECORD]
    return found


def _shape(value: dict[str, Any], wanted: dict[str, tuple[type, ...]], where: str) -> list[str]:
    if list(value) != list(wanted):
        return [f"{where} has {list(value)}, not {list(wanted)}"]
    return [
        f"{where}.{key} is {type(value[key]).__name__}"
        for key, kinds in wanted.items()
        if type(value[key]) not in kinds
    ]
