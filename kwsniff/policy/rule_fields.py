"""Fields that a rule names, held against the schema: paths, and values of the type that the field has.

In: nodes of a rule file, a Message and the versions in question. Out: Steps and Python values as the codec
takes them, or a Mistake with the nearest name. `assign` puts a value into a body. Knows no actions.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

from kwsniff.model import Body
from kwsniff.policy.rule_text import List, Map, Mistake, Node, Text, printable
from kwsniff.policy.rule_values import error_code, flag, integer, is_null, near, said
from kwsniff.policy.ruleset import ALL, Assignment, Step
from kwsniff.wire.schema import Field, Message, Versions

_STEP = re.compile(r"([A-Za-z_]\w*)(?:\[(\*|\d{1,6})\])?")
_RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
_MOST = 32_767  # bytes of a string in the old encoding
Fields = tuple[Field, ...]


def find(message: Message, path: str, versions: tuple[Versions, ...], line: int) -> tuple[Step, ...]:
    """The steps of `path` in a message that has it in one of the versions. Raises Mistake."""
    steps = _steps(path, line)
    fields = message.fields
    for number, step in enumerate(steps):
        same = [field for field in fields if field.key == step.key]
        if not same:
            raise Mistake(line, _unknown(message, step.key, fields, _so_far(steps, number)))
        there = [field for field in same if _meet(field.versions, versions)]
        if not there:
            spans = ", ".join(str(field.versions) for field in same)
            raise Mistake(line, f"`{path}` is in {message.name} only in {spans}")
        if there[0].array and step.index is None and number < len(steps) - 1:
            raise Mistake(line, f"`{step.key}` is an array: write `{step.key}[*]`")
        if not there[0].array and step.index is not None:
            raise Mistake(line, f"`{step.key}` is no array: write `{step.key}`")
        fields = there[0].fields
        if not fields and number < len(steps) - 1:
            raise Mistake(line, f"`{step.key}` of {message.name} is {_type(there[0])}: nothing is below it")
    return steps


def field_at(message: Message, steps: tuple[Step, ...], versions: tuple[Versions, ...]) -> Field:
    """The field that `find` has found."""
    fields, found = message.fields, None
    for step in steps:
        found = next(f for f in fields if f.key == step.key and _meet(f.versions, versions))
        fields = found.fields
    assert found is not None
    return found


def spans(message: Message, steps: tuple[Step, ...]) -> list[Versions]:
    """The versions that have the field."""
    fields: Fields = message.fields
    here: list[Field] = []
    for step in steps:
        here = [field for field in fields if field.key == step.key]
        fields = tuple(below for field in here for below in field.fields)
    return [field.versions for field in here]


def _steps(path: str, line: int) -> tuple[Step, ...]:
    found = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise Mistake(line, f"'{printable(path)}' is no path: write topics[*].partitions[*].fetchOffset")
        index = None if match[2] is None else ALL if match[2] == "*" else int(match[2])
        found.append(Step(match[1], index))
    return tuple(found)


def written(steps: tuple[Step, ...]) -> str:
    marks = {None: "", ALL: "[*]"}
    return ".".join(f"{step.key}{marks.get(step.index, f'[{step.index}]')}" for step in steps)


def _so_far(steps: tuple[Step, ...], number: int) -> str:
    return "" if not number else f" at `{written(steps[:number])}`"


def _unknown(message: Message, key: str, fields: Fields, place: str) -> str:
    """Near is first what this struct has, then the field of that name elsewhere, then what is near it."""
    told = f"no field `{printable(key)}` in {message.name}"
    hint = near(key, [field.key for field in fields])
    if hint:
        return told + hint
    everywhere = dict(_paths(message.fields, ""))
    exact = [path for path, field in everywhere.items() if field.key == key]
    if exact:
        return f"{told}{place}; there is `{exact[0]}`"
    close = near(key, {field.key for field in everywhere.values()})
    match = re.search(r"`(.*)`", close)
    if match is None:
        return told + place
    path = next(path for path, field in everywhere.items() if field.key == match[1])
    return f"{told}{close} It is `{path}`"


def _paths(fields: Fields, above: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield f"{above}{field.key}", field
        yield from _paths(field.fields, f"{above}{field.key}{'[*]' if field.array else ''}.")


def _meet(span: Versions, versions: tuple[Versions, ...]) -> bool:
    return any(span.min <= other.max and other.min <= span.max for other in versions)


def body_of(message: Message, node: Node, versions: tuple[Versions, ...]) -> Body:
    """A body, or a part of one, as it is written in the file."""
    if is_null(node):
        return {}
    if not isinstance(node, Map):
        raise Mistake(node.line, f"the fields of {message.name} are a map (`key: value`), not {said(node)}")
    return _struct(message, node, message.fields, versions)


def value_of(
    message: Message, node: Node, field: Field, element: bool, versions: tuple[Versions, ...]
) -> Any:
    """element: of an array, the value is that of one element."""
    null = field.nullable is not None and not element
    if is_null(node) and null and not (field.type == "string" and isinstance(node, Text) and not node.text):
        return None
    if field.array and not element:
        if not isinstance(node, List):
            raise Mistake(node.line, f"`{field.key}` is an array (`[...]`), not {said(node)}")
        return [value_of(message, item, field, True, versions) for item in node.items]
    if field.is_struct:
        if not isinstance(node, Map):
            raise Mistake(node.line, f"`{field.key}` is a struct (`key: value`), not {said(node)}")
        return _struct(message, node, field.fields, versions)
    if field.entity == "errorCode" and isinstance(node, Text) and not re.fullmatch(r"-?\d+", node.text):
        return 0 if node.text == "NONE" else error_code(node)
    return _scalar(field, node)


def _struct(message: Message, node: Map, fields: Fields, versions: tuple[Versions, ...]) -> Body:
    made: Body = {}
    for key, value in node.pairs.items():
        same = [field for field in fields if field.key == key]
        if not same:
            raise Mistake(node.lines[key], _unknown(message, key, fields, ""))
        there = [field for field in same if _meet(field.versions, versions)]
        if not there:
            raise Mistake(node.lines[key], f"`{key}` is in {message.name} only in {same[0].versions}")
        made[key] = value_of(message, value, there[0], False, versions)
    return made


def _type(field: Field) -> str:
    article = "an" if field.type[0] in "aeiou" and not field.type.startswith("u") else "a"
    return f"{article} {field.type}"


def _scalar(field: Field, node: Node) -> Any:
    what = f"`{field.key}` ({field.type})"
    if field.type in _RANGES:
        return integer(node, what, *_RANGES[field.type])
    if field.type == "bool":
        return flag(node, what)
    if not isinstance(node, Text) or (is_null(node) and node.text):
        raise Mistake(node.line, f"`{field.key}` is {_type(field)}, not {said(node)}")
    if field.type == "string" and len(node.text.encode("utf-8", "replace")) > _MOST:
        raise Mistake(node.line, f"`{field.key}` is a string of at most {_MOST} bytes")
    made = _READERS[field.type](node.text)
    if made is None:
        raise Mistake(node.line, f"`{field.key}` is {_FORMS[field.type]}, not {said(node)}")
    return made


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _uuid(text: str) -> str | None:
    return text if re.fullmatch(r"[\w-]{21}[AQgw]", text, re.ASCII) else None


def _bytes(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def _string(text: str) -> str | None:
    return None if re.search("[\ud800-\udfff]", text) else text


_READERS: dict[str, Callable[[str], Any]] = {
    "string": _string,
    "float64": _float,
    "uuid": _uuid,
    "bytes": _bytes,
    "records": _bytes,
}
_FORMS = {
    "string": "a string of Unicode",
    "float64": "a number",
    "uuid": "an id of 22 characters (URL-safe base64)",
    "bytes": "bytes in base64",
    "records": "bytes in base64",
}


def assign(body: Body, assignment: Assignment) -> list[tuple[Any, Any]]:
    """Sets the field wherever it is in `body`, which is changed: (old, new) of each place."""
    changed: list[tuple[Any, Any]] = []
    _assign(body, assignment.steps, assignment, changed)
    return changed


def _assign(holder: Any, steps: tuple[Step, ...], given: Assignment, changed: list[tuple[Any, Any]]) -> None:
    step = steps[0]
    if not isinstance(holder, dict) or (holder.get(step.key) is None and len(steps) > 1):
        return
    if step.key not in holder:  # a field of other versions
        return
    if step.index is None:
        _place(holder, step.key, steps[1:], given, changed)
        return
    items = holder[step.key]
    if not isinstance(items, list):
        return
    for index in range(len(items)) if step.index == ALL else (step.index,):
        if index < len(items):
            _place(items, index, steps[1:], given, changed)


def _place(
    holder: Any, key: Any, rest: tuple[Step, ...], given: Assignment, changed: list[tuple[Any, Any]]
) -> None:
    if rest:
        _assign(holder[key], rest, given, changed)
        return
    old = holder[key]
    new = given.value if given.names is None else given.names.get(old, old)
    if new != old or type(new) is not type(old):
        holder[key] = new
        changed.append((old, new))
