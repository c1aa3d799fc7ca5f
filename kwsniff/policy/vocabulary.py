"""Which names a filter may use: those of the JSON line, and those of the schema in `request` and `response`.

In: nothing but the schema. Out: tables of names. CEL checks top-level names and their types but not the keys
of maps; a mistyped key would make an expression silently false, so these tables are what stands between a
typo and an empty result. Knows neither CEL nor lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

TOP_LEVEL = {
    "timestamp": "string",
    "requestHeader": "dyn",
    "request": "dyn",
    "response": "dyn",
    "connection": "string?",
    "totalTimeMs": "dyn",
    "throttleTimeMs": "dyn",
    "securityProtocol": "string?",
    "principal": "string?",
    "clientInformation": "dyn",
    "kwsniff": "map",
}
"""Name -> kind. Numbers are dyn, because CEL refuses double against int; so are objects that may be null."""

BODIES = ("request", "response")

_FAULT = (
    "reason message side api version correlationId path offset packet lost fileOffset"  # as in the JSON line
)
BELOW: dict[str, frozenset[str]] = {
    path: frozenset(names.split())
    for path, names in {
        "requestHeader": "requestApiKey requestApiKeyName requestApiVersion correlationId clientId"
        " requestApiVersionDeprecated",
        "clientInformation": "softwareName softwareVersion",
        "kwsniff": "outcome client broker session protocol requestBytes responseBytes file requestPacket"
        " responsePacket topics groupId errors tags faults fault fetched rawStrings",
        "kwsniff.errors": "code name topic partition",
        "kwsniff.faults": _FAULT,
        "kwsniff.fault": _FAULT,
        "kwsniff.fetched": "topic partition fetchOffset",
    }.items()
}
"""Path -> the names below it. A path that is not here (kwsniff.rawStrings) is not checked."""

_RECORDS = (
    "batches records codecs magics baseOffset lastOffset crcErrors"  # fSummary
    " magic codec crc crcValid attributes lastOffsetDelta baseTimestamp maxTimestamp partitionLeaderEpoch"
    " timestampType transactional isTransactional control isControl deleteHorizon deleteHorizonMs"
    " producerId producerEpoch baseSequence recordCount size"
    " offset timestamp key value headers sequence base64 version type message _tags"
    " batchLength messageSize nextOffset requestHeader responseHeader request response"
)
_KAFKA07 = "topic partition messageSet offset maxSize time maxNumOffsets fetches produces errorCode responses"


@cache
def body_names() -> frozenset[str]:
    """Every field name that any message, embedded payload or record of any version has in the JSON line."""
    from kwsniff.wire import connect, schema

    names = {*_RECORDS.split(), *_KAFKA07.split()}
    connects = [connect.message(f"ConnectProtocol{kind}") for kind in ("Metadata", "Assignment")]
    for message in (*schema.messages(), *connects):
        pending = list(message.fields)
        while pending:
            field = pending.pop()
            names.add(field.key)
            pending.extend(field.fields)
    return frozenset(names | {f"{name}{end}" for name in names for end in ("SizeInBytes", "Summary")})


def allowed(path: str) -> frozenset[str] | None:
    """The names that may stand behind `path`; None where anything may."""
    return body_names() if path in BODIES else BELOW.get(path)


def step(path: str, name: str) -> str:
    """The path that names are looked up under behind `path`.`name`; all of a body is one path."""
    return path if path in BODIES else f"{path}.{name}"


def near_miss(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    spelled = {known.lower(): known for known in sorted(names)}
    close = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return f" (did you mean '{spelled[close[0]]}'?)" if close else ""


def hint_for(name: str) -> str:
    """What to write instead of the unknown top-level `name`; all that there is when nothing comes near."""
    below = sorted(f"{path}.{name}" for path, names in BELOW.items() if "." not in path and name in names)
    if below:
        return f" (did you mean '{below[0]}'?)"
    return near_miss(name, TOP_LEVEL) or f"; there are {', '.join(TOP_LEVEL)}"
