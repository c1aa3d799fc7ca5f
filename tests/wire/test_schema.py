"""The schema notation, and what the schema as a whole must be."""

from __future__ import annotations

import pytest

from kwsniff import wire
from kwsniff.errors import UnknownMessage
from kwsniff.wire import notation, schema
from kwsniff.wire.notation import SchemaError

ENTITIES = {"topicName": "string", "brokerId": "int32"}

EXAMPLE = """\
# an example
api 9 Look v0-5 flexible v3+
  listeners broker controller
  formerly Peek
  deprecated v0-1
  unstable v5
  until 4.2.0

  request
    Topics: [LookTopic]?v2+ v1+     # null: all
      Name: topicName
      Partitions: [int32] v4
    Owner: brokerId v0-2 = -1 ignorable
    Where: Place? v3+ tag 2 = null
    Also: Place v5
    Token: bytes v3-4 secret

    struct Place
      Host: string
      Port: int32 v4+ = 0x23ff

    variant 2.0.0-2.0.3 v3 flexible
      Name: string inflexible

  response
    Ok: bool = true

data Loose v1
  Inner: Inner
    Value: string? config
"""


def parsed(text=EXAMPLE):
    return {message.name: message for message in notation.parse("x.schema", text, ENTITIES)}


def field(message, *path):
    fields = message.fields
    for name in path:
        (found,) = (f for f in fields if f.name == name)
        fields = found.fields
    return found


class TestNotation:
    def test_an_api_is_two_messages(self):
        request = parsed()["LookRequest"]
        assert (request.type, request.api_key, request.versions) == ("request", 9, (0, 5))
        assert request.flexible == (3, 5)
        assert not request.flexible_in(2)
        assert parsed()["LookResponse"].type == "response"

    def test_notes(self):
        response = parsed()["LookResponse"]
        assert response.aliases == ("PeekResponse",)
        assert response.listeners == ("broker", "controller")
        assert (response.deprecated, response.unstable, response.until) == ((0, 1), (5, 5), "4.2.0")

    def test_versions_come_from_what_encloses_a_field(self):
        request = parsed()["LookRequest"]
        assert field(request, "Topics").versions == (1, 5)
        assert field(request, "Topics").nullable == (2, 5)
        assert field(request, "Topics", "Name").versions == (1, 5)
        assert field(request, "Topics", "Partitions").versions == (4, 4)
        assert field(parsed()["Loose"], "Inner", "Value").versions == (1, 1)

    def test_types(self):
        request = parsed()["LookRequest"]
        topics, name, owner = (
            field(request, "Topics"),
            field(request, "Topics", "Name"),
            field(request, "Owner"),
        )
        assert (topics.key, topics.type, topics.array, topics.is_struct) == (
            "topics",
            "LookTopic",
            True,
            True,
        )
        assert (name.type, name.entity) == ("string", "topicName")
        assert (owner.type, owner.entity, owner.default, owner.ignorable) == ("int32", "brokerId", -1, True)

    def test_defaults(self):
        assert field(parsed()["LookRequest"], "Where").default_null
        assert field(parsed()["LookRequest"], "Where", "Port").default == 9215
        assert field(parsed()["LookResponse"], "Ok").default is True
        assert field(parsed()["Loose"], "Inner", "Value").default == ""

    def test_a_shared_struct_has_the_versions_of_each_use(self):
        request = parsed()["LookRequest"]
        assert field(request, "Where", "Host").versions == (3, 5)
        assert field(request, "Also", "Host").versions == (5, 5)
        assert field(request, "Where", "Port").versions == (4, 5)

    def test_marks_and_tags(self):
        assert field(parsed()["LookRequest"], "Token").mark == "secret"
        assert field(parsed()["Loose"], "Inner", "Value").mark == "config"
        assert field(parsed()["LookRequest"], "Where").tag == 2

    def test_a_variant(self):
        (variant,) = parsed()["LookRequest"].variants
        assert (variant.name, variant.variant) == ("LookRequest", "2.0.0-2.0.3")
        assert (variant.versions, variant.flexible) == ((3, 3), (3, 3))
        assert [f.name for f in variant.fields] == ["Name"]
        assert not field(variant, "Name").flexible


class TestMistakes:
    @pytest.mark.parametrize(
        ("line", "why", "text"),
        [
            (1, "neither a message", "apis 1 X v0"),
            (1, "neither a message", "api one X v0"),
            (2, "neither a message", "data X v0\nField: int32"),
            (1, "an api has a request and a response", "api 1 X v0\n  request"),
            (2, "not a field", "data X v0\n  Field int32"),
            (2, "not a field", "data X v0\n  Field: int32 ignorable v3"),
            (2, "unknown type int33", "data X v0\n  Field: int33"),
            (2, "unknown type Foo", "data X v0\n  Field: [Foo]"),
            (3, "indentation", "data X v0\n  A: int32\n   B: int32"),
            (2, "indentation", "data X v0\n    A: int32"),
            (2, "indentation", "data X v0\n\tA: int32"),
            (3, "int32 has no fields", "data X v0\n  A: int32\n    B: int32"),
            (3, "the same name or tag as A", "data X v0-3\n  A: int32 v0-2\n  A: int64 v2+"),
            (3, "the same name or tag as A", "data X v0 flexible v0+\n  A: int8 tag 1\n  B: int8 tag 1"),
            (2, "no version of v4+ is in v0-3", "data X v0-3\n  A: int32 v4+"),
            (2, "v4- is no version range", "data X v0-3\n  A: int32 v4-"),
            (2, "int32 cannot be null", "data X v0\n  A: int32?"),
            (2, "a default of null", "data X v0\n  A: string = null"),
            (2, "ten is no default of int32", "data X v0\n  A: int32 = ten"),
            (2, "x is no default of string", "data X v0\n  A: string = x"),
            (4, "Foo contains itself", "data X v0\n  A: Foo\n  struct Foo\n    B: Foo"),
            (2, "not `variant", "data X v0\n  variant 1.0"),
            (1, "not `type", "type a int32"),
        ],
    )
    def test_name_file_and_line(self, line, why, text):
        with pytest.raises(SchemaError) as caught:
            notation.parse("x.schema", text, ENTITIES)
        assert str(caught.value).startswith(f"x.schema:{line}: ")
        assert why in str(caught.value)


class TestWhole:
    def test_a_file_per_api_named_by_it(self):
        for path in schema.FOLDER.glob("[0-9]*.schema"):
            number, stem = path.stem.split("-")
            assert wire.request_of(int(number)).name == f"{stem}Request"
            assert wire.response_of(int(number)).name == f"{stem}Response"
        assert len(list(schema.FOLDER.glob("[0-9]*.schema"))) == 93

    def test_no_line_is_too_long_to_read(self):
        for path in schema.FOLDER.glob("*.schema"):
            assert max(map(len, path.read_text("utf-8").splitlines())) <= 110, path.name

    def test_former_names(self):
        assert wire.message("AlterIsrRequest").name == "AlterPartitionRequest"
        assert wire.message("ElectPreferredLeadersResponse").name == "ElectLeadersResponse"
        with pytest.raises(UnknownMessage):
            wire.message("AlterIsr")

    def test_tags_occur_in_flexible_versions_only(self):
        for message, field in every_field():
            if field.tag is not None:
                assert message.flexible_in(field.versions.min), (message.name, field.name)

    def test_every_error_code_is_known_as_one(self):
        for message, field in every_field():
            if field.name.endswith("ErrorCode") and field.type == "int16":
                assert field.entity == "errorCode", (message.name, field.name)

    def test_entities_have_their_type(self):
        for message, field in every_field():
            if field.name in ("TopicId", "topicId"):
                assert field.entity == "topicId", (message.name, field.name)
            if field.name in ("TopicName", "GroupId", "TransactionalId", "PartitionIndex", "BrokerId"):
                assert field.entity == field.key, (message.name, field.name)

    def test_every_element_of_an_array_takes_bytes(self):
        """Else a count could not be checked against the bytes that are left."""
        for message, field in every_field():
            if field.array and field.is_struct:
                for version in range(field.versions.min, field.versions.max + 1):
                    plain = [f for f in field.fields if f.versions.covers(version) and f.tag is None]
                    assert plain or message.flexible_in(version), (message.name, field.name, version)


def every_field():
    for message in schema.messages():
        for layout in (message, *message.variants):
            pending = list(layout.fields)
            while pending:
                field = pending.pop()
                yield layout, field
                pending += field.fields
