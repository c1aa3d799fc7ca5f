"""Kafka's error codes, against kio's enumeration of them."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kwsniff.wire import errors


def test_names_are_kafkas():
    for known in ErrorCode:
        assert errors.error_name(known.value) == known.name.upper()


def test_whether_a_retry_can_help():
    differing = {
        c.name
        for c in errors.codes()
        if c.code in {k.value for k in ErrorCode} and c.retriable != ErrorCode(c.code).retriable
    }
    assert differing == set()


def test_a_code_of_tomorrow():
    assert errors.error_name(4711) == "UNKNOWN_4711"
    assert errors.error_name(-2) == "UNKNOWN_-2"
    assert errors.error(4711) is None


def test_former_names():
    assert errors.error_code("NOT_LEADER_FOR_PARTITION") == errors.error_code("NOT_LEADER_OR_FOLLOWER") == 6
    assert errors.error_code("NO_SUCH_ERROR") is None


def test_what_is_known():
    error = errors.error(3)
    assert (error.name, error.retriable, error.refresh_metadata) == ("UNKNOWN_TOPIC_OR_PARTITION", True, True)
    assert [known.code for known in errors.codes()] == list(range(-1, 134))
