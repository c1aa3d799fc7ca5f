"""The protocol as text to read: all APIs in a table, and the fields of one message at one version.

In: names, keys and versions as people write them. Out: lines. ConfigError for what there is not, with the
nearest name. Field names are those of the JSON line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kwsniff import wire
from kwsniff.errors import ConfigError, UnknownMessage
from kwsniff.wire import releases, schema
from kwsniff.wire.schema import Field, Message, Versions


def listing() -> Iterator[str]:
    """Every API: key, name, versions, those that are flexible or deprecated, the releases that serve it."""
    yield f"{'key':>3}  {'API':32}  {'versions':8}  {'flexible':8}  {'deprecated':10}  served by Kafka"
    for request in _requests():
        assert request.api_key is not None
        flexible = f"v{request.flexible.min}+" if request.flexible else "-"
        cells = (
            f"{request.api_key:>3}", f"{wire.api_name(request.api_key):32}", f"{request.versions!s:8}",
            f"{flexible:8}", f"{request.deprecated or '-'!s:10}", _served_by(request.api_key),
        )  # fmt: skip
        yield "  ".join(cells).rstrip()


def describe(name: str, version: int | None) -> Iterator[str]:
    """One API (request and response) or one message, at a version; None: at its newest."""
    messages = _messages(name)
    first = messages[0]
    if version is None:
        version = first.versions.max
    if not first.versions.covers(version):
        raise ConfigError(f"{first.name} has the versions {first.versions}, not v{version}")
    yield from _about(first)
    for message in messages:
        yield ""
        flexible = ", flexible" if message.flexible_in(version) else ""
        yield f"{message.name} v{version}{flexible}"
        rows = list(_fields(message.fields, version, 1))
        yield from rows or ["  (no fields)"]


def _requests() -> Iterator[Message]:
    return (message for message in schema.messages() if message.type == "request")


def _messages(name: str) -> list[Message]:
    """What `name` means: an API by key or name (FETCH, Fetch, fetch), or a message (FetchRequest)."""
    if name.isdecimal():
        request, response = wire.request_of(int(name)), wire.response_of(int(name))
        if request is None or response is None:
            raise ConfigError(f"no API has the key {name}; `kwsniff apis` lists them")
        return [request, response]
    wanted = _plain(name)
    for request in _requests():
        stems = [stem.removesuffix("Request") for stem in (request.name, *request.aliases)]
        if wanted in map(_plain, stems) and request.api_key is not None:
            return _messages(str(request.api_key))
    for message in schema.messages():
        if wanted in map(_plain, (message.name, *message.aliases)):
            return [message]
    try:
        return [wire.message(name)]
    except UnknownMessage:
        known = {
            message.name.removesuffix("Request").removesuffix("Response") for message in schema.messages()
        }
        near = schema.near(name, known)
        raise ConfigError(f"there is no API or message '{name}'{near}; `kwsniff apis` lists them") from None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _about(message: Message) -> Iterator[str]:
    if message.type in ("request", "response") and message.api_key is not None:
        facts = [f"{wire.api_name(message.api_key)}, key {message.api_key}, {message.versions}"]
        if message.flexible:
            facts.append(f"flexible from v{message.flexible.min}")
        request = wire.request_of(message.api_key)
        if request and request.deprecated:
            facts.append(f"deprecated {request.deprecated}")
        if message.listeners:
            facts.append(f"listeners: {', '.join(message.listeners)}")
        yield ", ".join(facts)
        yield from _history(message.api_key)
    else:
        number = "" if message.api_key is None else f" {message.api_key}"
        place = f" of {message.store}" if message.store else ""
        yield f"{message.name}, {message.type}{number}{place}, {message.versions}"
    if message.aliases:
        yield f"formerly {', '.join(message.aliases)}"


def _history(api: int) -> Iterator[str]:
    """Which releases serve which versions."""
    runs = [
        (versions, list(lines))
        for versions, lines in groupby(releases.releases(), key=lambda line: releases.served(line, api))
    ]
    for versions, lines in runs:
        if versions is not None:
            span = lines[0] if len(lines) == 1 else f"{lines[0]} to {lines[-1]}"
            yield f"  Kafka {span:16} {Versions(*versions)}"


def _served_by(api: int) -> str:
    lines = [line for line in releases.releases() if releases.served(line, api)]
    if not lines:
        return "no release"
    newest = releases.releases()[-1]
    return f"{lines[0]} and later" if lines[-1] == newest else f"{lines[0]} to {lines[-1]}"


def _fields(fields: tuple[Field, ...], version: int, depth: int) -> Iterator[str]:
    """Untagged fields in the order of the wire, then tagged ones by their number."""
    present = [field for field in fields if field.versions.covers(version)]
    present.sort(key=lambda field: -1 if field.tag is None else field.tag)
    for field in present:
        yield f"{'  ' * depth}{field.key}: {_type(field, version)}"
        yield from _fields(field.fields, version, depth + 1)


def _type(field: Field, version: int) -> str:
    """`array of FetchTopic`, `string (topicName) or null, default null, tagged 0`."""
    text = f"array of {field.type}" if field.array else field.type
    if field.entity:
        text += f" ({field.entity})"
    if field.null_in(version):
        text += " or null"
    if field.default_null:
        text += ", default null"
    elif field.default not in (None, "", 0, 0.0, b"", schema.ZERO_UUID, False):
        text += f", default {str(field.default).lower()}"
    if field.tag is not None:
        text += f", tagged {field.tag}"
    return text + (", secret" if field.mark == "secret" else "")
