"""Which release serves what. Expectations from Kafka's release notes, KIP-896 and KIP-932."""

from __future__ import annotations

import pytest

from kwsniff import wire
from kwsniff.errors import ConfigError
from kwsniff.wire import releases
from kwsniff.wire.releases import deprecated, served

PRODUCE, FETCH, LEADER_AND_ISR, JOIN_GROUP, SHARE_FETCH = 0, 1, 4, 11, 78


@pytest.mark.parametrize(
    ("release", "api", "versions"),
    [
        ("0.8.0", PRODUCE, (0, 0)),
        ("0.10.2", PRODUCE, (0, 2)),
        ("0.10.2.1", PRODUCE, (0, 2)),
        ("0.11.0.3", PRODUCE, (0, 3)),
        ("2.0", JOIN_GROUP, (0, 3)),
        ("3.9", LEADER_AND_ISR, (0, 7)),
        ("3.9.2", LEADER_AND_ISR, (0, 7)),
        ("4.0", LEADER_AND_ISR, None),
        ("4.0", PRODUCE, (3, 12)),
        ("4.0", FETCH, (4, 17)),
        ("4.0", SHARE_FETCH, None),
        ("4.1", SHARE_FETCH, (1, 1)),
        ("0.8.2", JOIN_GROUP, None),
        ("4.3", 999, None),
    ],
)
def test_what_is_served(release, api, versions):
    assert served(release, api) == versions


def test_a_release_without_patch_number_is_its_newest_patch():
    assert served("4.0.0", JOIN_GROUP) == (2, 9)
    assert served("4.0.1", JOIN_GROUP) == served("4.0.2", JOIN_GROUP) == served("4.0", JOIN_GROUP) == (0, 9)


def test_releases_in_order():
    known = releases.releases()
    assert known[0] == "0.8.0"
    assert known[known.index("0.11.0") + 1] == "1.0"
    assert known[-1] == "4.3"


@pytest.mark.parametrize("release", releases.releases())
def test_nothing_is_served_that_the_schema_does_not_have(release):
    for api in range(93):
        versions = served(release, api)
        request = wire.request_of(api)
        assert versions is None or request.versions.min <= versions[0] <= versions[1] <= request.versions.max


@pytest.mark.parametrize(
    ("release", "hint"),
    [
        ("0.10", "did you mean 0.10.0 or 0.10.1 or 0.10.2?"),
        ("4", "did you mean 4.1 or 4.2 or 4.3?"),
        ("4.0.x", "did you mean 4.0?"),
        ("latest", "known: 0.8.0 to 4.3"),
        ("", "known: 0.8.0 to 4.3"),
        ("4.0.1.2", "did you mean"),
    ],
)
def test_unknown_releases(release, hint):
    with pytest.raises(ConfigError) as caught:
        served(release, PRODUCE)
    assert str(caught.value).startswith(f"unknown Kafka release {release}")
    assert hint in str(caught.value)


def test_versions_that_kafka_39_calls_deprecated():  # KIP-896
    assert [version for version in range(19) if deprecated(FETCH, version)] == [0, 1, 2, 3]
    assert not deprecated(18, 0)
    assert not deprecated(999, 0)
