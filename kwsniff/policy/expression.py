"""A CEL expression over the JSON line: compiled and checked once, then asked line by line.

In: the expression's text, then lines as `kwsniff.output.jsonl.line` builds them (dicts). Out: true or false.
What can be wrong at the start (syntax, types, unknown names) is a ConfigError that points into the text; what
goes wrong on one line (null, no such field) is false there and counted in `errors`.
Knows nothing of frames or captures. https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kwsniff.errors import ConfigError
from kwsniff.policy import vocabulary

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)
      | (?P<text>(?:[rR][bB]?|[bB][rR]?)?
          (?:\"{3}(?s:.*?)\"{3} | '{3}(?s:.*?)'{3} | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'))
      | (?P<number>\.?\d(?:[eE][+-]|[\w.])*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>(?s:.))""",
    re.VERBOSE,
)
_REPORT = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*?)(?: \(in container ''\))?(?:\n|$)")
_MACROS = frozenset(("all", "exists", "exists_one", "existsOne", "map", "filter"))
_MESSAGES = (  # what the CEL library says, and what we say instead
    (re.compile(r"Syntax error: mismatched input '<EOF>'.*"), "the expression ends too early"),
    (re.compile(r"Syntax error: extraneous input (.*?) expecting.*"), r"unexpected \1"),
    (re.compile(r"Syntax error: mismatched input (.*?) expecting.*"), r"unexpected \1"),
    (re.compile(r"Syntax error: token recognition error at: '?(.*?)'?$"), r"cannot read \1"),
    (re.compile(r"Syntax error: no viable alternative at input .*"), "a name or value is missing"),
    (re.compile(r"Syntax error: (.*)"), r"\1"),
    (re.compile(r"wrapper\(string\)"), "string"),
    (
        re.compile(r"found no matching overload for '_?@?(.*?)_?' applied to '(.*)'"),
        r"'\1' does not go with \2",
    ),
)
_EXCERPT = 40  # characters shown on each side of the place in question


class Token(NamedTuple):
    kind: str
    text: str
    at: int


class Expression:
    """A compiled filter. `errors` counts the lines where it could not be evaluated, `last_error` says why."""

    def __init__(self, text: str, program: Any, wanted: dict[str, frozenset[str] | None]) -> None:
        self.text = text
        self.errors = 0
        self.last_error: str | None = None
        self.reads = wanted
        """Top-level name -> the fields read of it, None for all of it."""
        self._program = program

    def matches(self, line: dict[str, Any]) -> bool:
        """Whether the expression is true of `line`; an expression that fails on it is false."""
        try:
            result = self._program.eval(data=self._data(line)).value()
        except (RuntimeError, ValueError, TypeError) as error:
            result = str(error)
        if result is True or result is False:
            return result
        self.errors += 1
        self.last_error = str(result).split(": ", 1)[-1]
        return False

    def _data(self, line: dict[str, Any]) -> dict[str, Any]:
        """What the expression reads of the line, as JSON shows it: conversion to CEL costs by size."""
        from msgspec import json as fast

        data = {}
        for name, fields in self.reads.items():
            value = line.get(name)
            if fields is not None and isinstance(value, dict):
                value = {field: value[field] for field in fields if field in value}
            data[name] = value
        try:
            return fast.decode(fast.encode(data))  # type: ignore[no-any-return]
        except UnicodeEncodeError:
            text = json.dumps(data, ensure_ascii=False, default=_as_json)
            return json.loads(re.sub("[\ud800-\udfff]", "\ufffd", text))  # type: ignore[no-any-return]


def compile_filter(text: str) -> Expression:
    """Compiles and checks `text`. ConfigError (one line; `^` before the place) when it cannot be right."""
    try:
        from cel_expr_python import cel
    except ImportError as error:  # no wheel for every platform
        raise ConfigError(f"filters need the package cel-expr-python: {error}") from error
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("filter: it is not valid UTF-8") from None
    tokens = [t for t in _tokens(text) if t.kind != "space"]
    kinds = {
        "string": (cel.Type.STRING, cel.Type.STRING),
        "string?": (cel.Type("google.protobuf.StringValue"), cel.Type.DYN),
        "map": (cel.Type.Map(cel.Type.STRING, cel.Type.DYN),) * 2,
        "dyn": (cel.Type.DYN, cel.Type.DYN),
    }
    checked, lenient = (
        cel.NewEnv(variables={name: kinds[kind][i] for name, kind in vocabulary.TOP_LEVEL.items()})
        for i in (0, 1)
    )
    # Two: the first knows which strings may be null, which the library checks but cannot evaluate.
    try:
        kind = checked.compile(text).return_type()
        program = lenient.compile(text)
    except (RuntimeError, TypeError, ValueError) as error:
        raise _refusal(text, tokens, str(error)) from None
    reads = list(_reads(text, tokens))
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        raise _error(text, 0, f"it must be true or false, and this is {kind.name().lower()}")
    return Expression(text, program, _wanted(reads))


def _tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        yield Token(match.lastgroup or "", match.group(), match.start())


class _Scope(NamedTuple):
    """What an opening bracket interrupts: the path it stands behind, and the names that were bound there."""

    path: str | None
    bound: dict[str, str | None]


def _reads(text: str, tokens: list[Token]) -> Iterator[tuple[str, str | None]]:
    """(top-level name, field read of it or None for the whole), checking every name below on the way.

    `path` is where the value being built comes from (`kwsniff.errors`); None when not from the line. The
    variable of a macro (`errors.exists(e, e.code == 6)`) takes the path of what it runs over.
    """
    path: str | None = None
    bound: dict[str, str | None] = {}
    stack: list[_Scope] = []
    for i, token in enumerate(tokens):
        before, after = _sign(tokens, i - 1), _sign(tokens, i + 1)
        if token.text in ("(", "[", "{"):
            macro = token.text == "(" and _is_macro(tokens, i)
            stack.append(_Scope(path if _continues(tokens, i) else None, bound))
            if macro:
                bound = bound | {tokens[i + 1].text: path}
            path = None
        elif token.text in (")", "]", "}") and stack:
            path, bound = stack.pop()
        elif token.kind == "name" and before == ".":
            if after != "(":
                path = _select(text, token, path)
        elif token.kind == "name":
            path = _variable(token, after, bound)
            if path in vocabulary.TOP_LEVEL and token.text not in bound:
                select = after == "." and _sign(tokens, i + 3) != "("
                yield str(path), tokens[i + 2].text if select and i + 2 < len(tokens) else None
        elif token.text != ".":
            path = None


def _sign(tokens: list[Token], i: int) -> str:
    return tokens[i].text if 0 <= i < len(tokens) else ""


def _continues(tokens: list[Token], i: int) -> bool:
    """Whether the bracket at `i` continues an expression (an index, a method's call), not opens a new one."""
    if tokens[i].text == "[":
        return i > 0 and (tokens[i - 1].kind == "name" or tokens[i - 1].text in (")", "]"))
    return tokens[i].text == "(" and i > 1 and tokens[i - 1].kind == "name" and tokens[i - 2].text == "."


def _is_macro(tokens: list[Token], i: int) -> bool:
    return (
        _continues(tokens, i)
        and tokens[i - 1].text in _MACROS
        and i + 2 < len(tokens)
        and tokens[i + 1].kind == "name"
        and tokens[i + 2].text == ","
    )


def _variable(token: Token, after: str, bound: dict[str, str | None]) -> str | None:
    if token.text in bound:
        return bound[token.text]
    return token.text if token.text in vocabulary.TOP_LEVEL and after != "(" else None


def _select(text: str, token: Token, path: str | None) -> str | None:
    if path is None:
        return None
    names = vocabulary.allowed(path)
    if names is not None and token.text not in names:
        hint = vocabulary.near_miss(token.text, names)
        raise _error(text, token.at, f"no field '{token.text}' in {path}{hint}")
    return vocabulary.step(path, token.text)


def _wanted(reads: list[tuple[str, str | None]]) -> dict[str, frozenset[str] | None]:
    """Top-level name -> the fields read of it, None for all of it."""
    wanted: dict[str, frozenset[str] | None] = {}
    for name, field in reads:
        known = wanted.get(name, frozenset())
        wanted[name] = None if field is None or known is None else known | {field}
    return wanted


def _refusal(text: str, tokens: list[Token], report: str) -> ConfigError:
    """The library's first error in our words: `ERROR: <input>:line:column: message`."""
    found = _REPORT.search(report)
    if found is None:  # such as its limit on nesting
        return ConfigError(f"filter: {report.split(' [')[0].split(': ', 1)[-1]}")
    line, column, message = int(found[1]), int(found[2]), found[3]
    at = min(sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1, len(text))
    unknown = re.match(r"undeclared reference to '([^'.]*)", message)
    if unknown and _sign(tokens, next((i for i, t in enumerate(tokens) if t.at == at), -1)) != "(":
        name = unknown[1]
        at = next((t.at for t in tokens if t.text == name and t.kind == "name"), at)
        return _error(text, at, f"no field '{name}'{vocabulary.hint_for(name)}")
    if unknown:
        return _error(text, max(text.rfind(unknown[1], 0, at), 0), f"no function '{unknown[1]}'")
    for pattern, ours in _MESSAGES:
        message = pattern.sub(ours, message.removesuffix(" [INVALID_ARGUMENT]"))
    return _error(text, at, message)


def _error(text: str, at: int, message: str) -> ConfigError:
    """One line, because that is what a user's mistake gets: the `^` stands just before the place."""
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    where = f"line {line}, column {at - start + 1}" if "\n" in text.strip() else f"column {at - start + 1}"
    end = text.find("\n", at)
    left, right = text[start:at], text[at : end if end >= 0 else len(text)]
    left = left if len(left) <= _EXCERPT else "..." + left[-_EXCERPT:]
    right = right if len(right) <= _EXCERPT else right[:_EXCERPT] + "..."
    told = f"filter, {where}: {message}: {left}^{right}"
    return ConfigError("".join(c if c.isprintable() else "\ufffd" for c in told))


def _as_json(value: object) -> Any:
    """What JSON makes of a value that it has no type for: bytes, and text that is JSON already."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    from msgspec import Raw

    if isinstance(value, Raw):
        return json.loads(bytes(value))
    raise TypeError(type(value))
