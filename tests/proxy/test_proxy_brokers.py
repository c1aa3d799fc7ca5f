"""Which broker is reached where: deterministic ports, ranges, names; and what becomes of one that moves."""

from __future__ import annotations

import pytest

from kwsniff.errors import ConfigError
from kwsniff.model import Endpoint
from kwsniff.proxy.brokers import Brokers, CannotPlace, Key, Names, Ports, Route

ONE, TWO = Endpoint("b1", 9092), Endpoint("b2", 9092)


class Opened:
    """A door that writes down what it opened."""

    def __init__(self, first: int = 19092, ports: range | None = None) -> None:
        self.ports = Ports(first, ports)
        self.routes: dict[int, Route] = {}

    def open(self, route: Route) -> tuple[str, int]:
        assert route.key is not None
        port = self.ports.port(route.key)
        self.routes[port] = route
        return "", port


def brokers(door: Opened, fixed: dict[int, Endpoint] | None = None) -> Brokers:
    found = Brokers((ONE,), fixed or {}, door)
    found.start()
    return found


def test_the_port_is_the_listen_port_plus_one_plus_the_node_id() -> None:
    door = Opened(19092)
    known = brokers(door)
    assert known.place(Key(0), ONE) == ("", 19093)
    assert known.place(Key(7), TWO) == ("", 19100)
    assert door.routes[19100].upstreams == (TWO,)


def test_a_listener_is_opened_once() -> None:
    door = Opened()
    known = brokers(door)
    assert known.place(Key(1), ONE) == known.place(Key(1), ONE)
    assert len(door.routes) == 1


def test_a_broker_that_moves_keeps_its_port() -> None:
    door = Opened()
    known = brokers(door)
    port = known.place(Key(1), ONE)[1]
    assert known.place(Key(1), TWO) == ("", port)
    assert door.routes[port].upstreams == (TWO,)


def test_a_broker_of_the_map_is_there_from_the_start_and_stays_where_it_is() -> None:
    door = Opened()
    known = brokers(door, {4: TWO})
    assert door.routes[19097].upstreams == (TWO,)
    assert known.place(Key(4), ONE) == ("", 19097)
    assert door.routes[19097].upstreams == (TWO,)


def test_a_node_that_is_broker_and_controller_has_two_listeners() -> None:
    """Combined mode: the same node id, another address. Clients must not end up at the controller's."""
    door = Opened()
    known = brokers(door)
    assert known.place(Key(1, controller=True), Endpoint("b1", 9093)) == ("", 20094)
    assert known.place(Key(1), ONE) == ("", 19094)


def test_an_address_without_node_id_is_that_of_the_broker_who_is_there() -> None:
    known = brokers(Opened())
    known.place(Key(1), ONE)
    assert known.nameless(ONE) == Key(1)
    assert known.nameless(TWO) == Key(None, address=TWO)


def test_a_range_takes_the_node_id_where_it_fits_and_else_the_lowest_free_port() -> None:
    ports = Ports(19092, range(20000, 20004))
    assert [ports.port(Key(node)) for node in (2, 1001, 2000, 1)] == [20002, 20000, 20001, 20003]
    with pytest.raises(CannotPlace, match="broker 5: every port of --port-range is taken"):
        ports.port(Key(5))


def test_the_main_port_is_not_given_away() -> None:
    ports = Ports(20000, range(20000, 20002))
    assert ports.port(Key(0)) == 20001


@pytest.mark.parametrize("node_id", [50_000, 2**31 - 1])
def test_a_node_id_that_leads_past_the_last_port_is_told_with_the_way_out(node_id: int) -> None:
    with pytest.raises(CannotPlace, match="use --port-range"):
        Ports(19092, None).port(Key(node_id))


def test_a_negative_node_id_gets_no_port() -> None:
    """-1 is "none" in Kafka and never gets here; anything else below 0 is nobody's."""
    with pytest.raises(CannotPlace, match="broker -5"):
        Ports(19092, None).port(Key(-5))
    with pytest.raises(CannotPlace, match="broker -5"):
        Ports(19092, range(20000, 20010)).port(Key(-5))


def test_names_tell_brokers_apart() -> None:
    names = Names("Kafka.Example.", lambda: 19093)
    assert names.open(Route(Key(3), (ONE,))) == ("broker-3.kafka.example", 19093)
    assert names.key("broker-3.kafka.example") == Key(3)
    assert names.key("BROKER-3.KAFKA.EXAMPLE.") == Key(3)
    assert names.key("controller-3.kafka.example") == Key(3, controller=True)
    assert names.key("kafka.example") is None


@pytest.mark.parametrize(
    "name", ["broker-x.kafka.example", "broker-1.other", "broker-.kafka.example", "x", ""]
)
def test_a_name_that_is_not_ours_is_none(name: str) -> None:
    with pytest.raises(LookupError):
        Names("kafka.example", lambda: 1).key(name)


def test_names_need_a_domain() -> None:
    with pytest.raises(ConfigError, match="--advertise"):
        Names("", lambda: 1)


def test_answers_cannot_fill_the_memory() -> None:
    class Anywhere:
        def open(self, route: Route) -> tuple[str, int]:
            return str(route.key), 1

    known = Brokers((ONE,), {}, Anywhere())
    for node_id in range(10_000):
        known.place(Key(node_id), ONE)
    with pytest.raises(CannotPlace, match="10,000 already"):
        known.place(Key(10_000), ONE)
