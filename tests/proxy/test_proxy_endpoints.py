"""Addresses as people write them."""

from __future__ import annotations

import pytest

from kwsniff.errors import ConfigError
from kwsniff.model import Endpoint
from kwsniff.proxy.endpoints import endpoint, endpoints, node, port_range


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("broker-1:9092", Endpoint("broker-1", 9092)),
        ("127.0.0.1:1", Endpoint("127.0.0.1", 1)),
        ("[::1]:9092", Endpoint("::1", 9092)),
        ("[fe80::1%eth0]:9092", Endpoint("fe80::1%eth0", 9092)),
        (" kafka.example.:65535 ", Endpoint("kafka.example.", 65535)),
    ],
)
def test_host_and_port(text: str, meant: Endpoint) -> None:
    assert endpoint(text) == meant


def test_every_address_of_this_machine_and_any_port() -> None:
    assert endpoint(":0", any_host=True, any_port=True) == Endpoint("", 0)


@pytest.mark.parametrize(
    "text",
    ["", "broker", "broker:", ":9092", "::1:9092", "b:65536", "b:0", "b:-1", "b:9o92", "a,b:1", "a/b:1"],
)
def test_what_is_none_is_named(text: str) -> None:
    with pytest.raises(ConfigError) as found:
        endpoint(text)
    assert text in str(found.value)
    assert "\n" not in str(found.value)


def test_several_are_kept_in_order() -> None:
    assert endpoints("b:1,a:2") == (Endpoint("b", 1), Endpoint("a", 2))


def test_a_node_and_its_place() -> None:
    assert node("3=[::1]:9092") == (3, Endpoint("::1", 9092))
    for text in ("3", "x=b:1", "-1=b:1", "=b:1"):
        with pytest.raises(ConfigError, match="NODE=HOST:PORT"):
            node(text)


def test_a_range_holds_both_its_ends() -> None:
    assert list(port_range("20000-20002")) == [20000, 20001, 20002]
    for text in ("20000", "2-1", "0-5", "65535-65536", "a-b"):
        with pytest.raises(ConfigError, match="range of ports"):
            port_range(text)
