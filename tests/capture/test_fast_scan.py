"""The compiled scanner does what the packet-by-packet one does: same chunks, books, errors, on any input."""

import io
import os
import random
import struct
from ipaddress import ip_address

import pytest
from capture_bytes import (
    CAPTURES,
    ROOT,
    SECOND,
    Trickle,
    block,
    enhanced,
    interface,
    obsolete,
    option,
    pcap_header,
    pcap_record,
    section,
    simple,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kwsniff.capture import scan
from kwsniff.capture.files import open_capture
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.stream import Limits
from kwsniff.capture.tcp import Reassembler
from kwsniff.errors import CaptureError
from kwsniff.model import Chunk, Flag

SYN, ACK, FIN, RST, PSH = Flag.SYN, Flag.ACK, Flag.FIN, Flag.RST, Flag.PSH
CLIENT, BROKER = ("10.0.0.1", 40000), ("10.0.0.2", 9092)
CLIENT6, BROKER6 = ("fd00::1", 40000), ("fd00::2", 9092)
MALFORMED = sorted((ROOT / "tests" / "data" / "malformed").iterdir())
TINY = Limits(
    reorder_window=2, reorder_time=50, stream_bytes=900, total_bytes=1500, connections=2, ended=2, pairs=50
)

needs_compiler = pytest.mark.skipif(scan.compiled_scan is None, reason="there is only one scanner here")


# ---- packets


def ip_tcp(src, dst, seq, data=b"", flags=ACK, ack=0, options=b"") -> bytes:
    offset = 5 + len(options) // 4
    tcp = struct.pack(
        ">HHIIBBHHH", src[1], dst[1], seq % (1 << 32), ack % (1 << 32), offset << 4, flags, 9, 0, 0
    )
    tcp += options + data
    ends = ip_address(src[0]).packed + ip_address(dst[0]).packed
    if len(ends) == 8:
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 7, 0x4000, 64, 6, 0) + ends + tcp
    return struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + ends + tcp


def ethernet(packet: bytes, tags: bytes = b"") -> bytes:
    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    return bytes(12) + tags + kind + packet


LINKS = {
    "ethernet": (1, ethernet),
    "vlan": (1, lambda ip: ethernet(ip, b"\x81\x00\x00\x05")),
    "qinq": (1, lambda ip: ethernet(ip, b"\x88\xa8\x00\x05\x81\x00\x00\x06")),
    "sll": (113, lambda ip: b"\0" * 14 + ethernet(ip)[12:]),
    "sll2": (276, lambda ip: ethernet(ip)[12:14] + b"\0" * 18 + ip),
    "null": (0, lambda ip: (b"\2\0\0\0" if ip[0] >> 4 == 4 else b"\x1e\0\0\0") + ip),
    "loop": (108, lambda ip: (b"\0\0\0\2" if ip[0] >> 4 == 4 else b"\0\0\0\x18") + ip),
    "raw": (101, lambda ip: ip),
    "ipv4": (228, lambda ip: ip),
}


def session(client, broker, up=b"ask", down=b"ANSWER", isn=(1000, 5000)) -> list[bytes]:
    """Handshake, a request in two segments, an acknowledgement, a response, and the end."""
    c, b = isn[0] + 1, isn[1] + 1
    return [
        ip_tcp(client, broker, c - 1, flags=SYN),
        ip_tcp(broker, client, b - 1, flags=SYN | ACK, ack=c),
        ip_tcp(client, broker, c, ack=b),
        ip_tcp(client, broker, c, up, ack=b),
        ip_tcp(broker, client, b, ack=c + len(up)),
        ip_tcp(client, broker, c + len(up), up, PSH | ACK, ack=b, options=b"\1" * 12),
        ip_tcp(broker, client, b, down, PSH | ACK, ack=c + 2 * len(up)),
        ip_tcp(client, broker, c + 2 * len(up), flags=FIN | ACK, ack=b + len(down)),
        ip_tcp(broker, client, b + len(down), flags=FIN | ACK, ack=c + 2 * len(up) + 1),
        ip_tcp(client, broker, c + 2 * len(up) + 1, ack=b + len(down) + 1),
    ]


def pcap(packets, link="ethernet", **more) -> bytes:
    linktype, wrap = LINKS[link]
    order = {"order": more["order"]} if "order" in more else {}
    records = (pcap_record(wrap(ip), time=(7, n), **order) for n, ip in enumerate(packets))
    return pcap_header(linktype=linktype, **more) + b"".join(records)


def pcapng(packets, link="ethernet", **more) -> bytes:
    linktype, wrap = LINKS[link]
    blocks = (enhanced(wrap(ip), time=7_000_000 + n, **more) for n, ip in enumerate(packets))
    return section(**more) + interface(linktype, **more) + b"".join(blocks)


# ---- both scanners


class Told:
    """What a scanner makes of captures, one after the other, with one state."""

    def __init__(self, make, captures, limits: Limits | None = None, expect_first: bool = True) -> None:
        self.links, self.streams = LinkDecoder(), Reassembler(limits)
        self.chunks: list[Chunk] = []
        self.firsts: list[int | None] = []
        self.lasts: list[int | None] = []
        self.errors: list[tuple[type, str]] = []
        self.runs = 0
        for path, stdin in captures:
            try:
                with open_capture(path, stdin=stdin) as capture:
                    self._read(make(capture), expect_first)
            except CaptureError as error:
                self.errors.append((type(error), str(error)))
        self.chunks += self.streams.flush()

    def _read(self, scanner, expect_first: bool) -> None:
        try:
            if expect_first:
                self.firsts.append(scanner.first())
            for items in scanner.batches(self.links, self.streams):
                self.runs += sum(type(item) is not Chunk for item in items)
                self.chunks += scan.chunks(items)
        finally:
            self.lasts.append(scanner.last)

    @property
    def all(self):
        streams = [
            (s.src, s.dst, s.next, s.acked, s.strays, s.plain, s.connection.tick, s.connection.last)
            for s in self.streams._streams.values()
        ]
        books = self.streams.tally, self.links.ignored, streams
        return self.chunks, self.errors, self.firsts, self.lasts, books


def told(*captures, step: int = 1 << 30, limits: Limits | None = None) -> Told:
    """Reads captures (bytes, or paths) with both scanners; what the compiled one told."""
    both = []
    for make in (scan.Scanner, scan.scanner):
        given = [("-", Trickle(c, step)) if isinstance(c, bytes) else (str(c), None) for c in captures]
        both.append(Told(make, given, limits))
    plain, fast = both
    assert fast.all == plain.all
    return fast


@pytest.mark.parametrize("path", CAPTURES + MALFORMED, ids=lambda path: path.name)
def test_samples(path):
    told(path)
    data = path.read_bytes()
    told(data, step=1000)
    told(data + b"\0" * 40, step=4096)


def test_byte_by_byte():
    packets = session(CLIENT, BROKER)
    for data in (pcap(packets), pcapng(packets)):
        assert told(data, step=1).all == told(data).all


def test_one_input_of_many_captures():
    told(*CAPTURES)
    packets = session(CLIENT, BROKER)
    parts = [pcap(packets[at : at + 2]) for at in range(0, 10, 2)]
    assert [c.data for c in told(*parts).chunks if c.data] == [b"ask", b"ask", b"ANSWER"]


# ---- what is ordinary


@needs_compiler
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("ends", [(CLIENT, BROKER), (CLIENT6, BROKER6)], ids=["ipv4", "ipv6"])
def test_links(link, ends):
    found = told(pcap(session(*ends), link))
    assert [c.data for c in found.chunks if c.data] == [b"ask", b"ask", b"ANSWER"]
    assert (found.runs, found.links.ignored) == (2, {})


@needs_compiler
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
def test_pcap_variants(order, magic):
    found = told(pcap(session(CLIENT, BROKER), order=order, magic=magic))
    unit = 1000 if magic == 0xA1B2C3D4 else 1
    assert found.runs == 2
    assert [(c.ts, c.packet) for c in found.chunks if c.data] == [
        (7 * SECOND + n * unit, n + 1) for n in (3, 5, 6)
    ]


@needs_compiler
@pytest.mark.parametrize("order", "<>")
def test_pcapng_variants(order):
    found = told(pcapng(session(CLIENT, BROKER), order=order))
    assert found.runs == 2
    assert [(c.ts, c.packet) for c in found.chunks if c.data] == [
        (7 * SECOND + n * 1000, n + 1) for n in (3, 5, 6)
    ]


def test_pcapng_blocks_of_every_kind_between_packets():
    ips = session(CLIENT, BROKER)
    frames = [ethernet(ip) for ip in ips]
    nano, binary = option(9, b"\x09"), option(9, b"\x94")
    late = option(14, struct.pack("<q", 50)) + option(9, b"\x06")
    found = told(
        section(">")
        + block(4, b"names", ">")
        + interface(options=option(9, b"\x09", ">"), order=">")
        + enhanced(frames[0], 7, order=">")
        + section()
        + interface(options=nano)
        + interface(101, options=binary)
        + interface(options=late)
        + interface(options=option(14, struct.pack("<q", -50)))
        + enhanced(frames[1], 8, options=option(1, b"a comment") + option(0, b""))
        + simple(frames[2], len(frames[2]))
        + enhanced(ips[3], 9 << 20, 1)
        + block(5, bytes(40))
        + enhanced(frames[4], 1 << 63, 2)
        + enhanced(frames[5], 3, 2)
        + obsolete(frames[6], 4, 2)
        + enhanced(frames[7], 5, 3)
        + enhanced(frames[8][:60], 6, 3, wire_length=len(frames[8]))
        + enhanced(frames[9], 6, 4)
    )
    assert [c.ts for c in found.chunks if c.data] == [9 * SECOND, 50 * SECOND + 3000, 50 * SECOND + 4000]
    ((_, error),) = found.errors
    assert "of interface 4, which is not described" in error


def test_more_interfaces_than_are_remembered():
    many = b"".join(interface(101 if n % 2 else 1) for n in range(200))
    blocks = [
        enhanced(ip if n % 2 else ethernet(ip), n, index=n * 19)
        for n, ip in enumerate(session(CLIENT, BROKER))
    ]
    assert len([c for c in told(section() + many + b"".join(blocks)).chunks if c.data]) == 3


def test_a_snaplen_cuts_payload_header_and_options():
    packets = [ethernet(ip) for ip in session(CLIENT, BROKER)]
    for snaplen in range(len(max(packets, key=len)) + 1):
        data = pcap_header() + b"".join(
            pcap_record(packet[:snaplen], wire_length=len(packet)) for packet in packets
        )
        told(data)


def test_headers_that_are_not_ordinary():
    first = session(CLIENT, BROKER)
    asked = first[3]
    head, body = asked[:20], asked[20:]
    fragments = [
        head[:2] + struct.pack(">HHH", 20 + len(part), 7, where) + head[8:] + part
        for part, where in ((body[:16], 0x2000), (body[16:], 2))
    ]
    with_options = (
        b"\x46" + asked[1:2] + struct.pack(">H", len(asked) + 4) + asked[4:20] + b"\1" * 4 + asked[20:]
    )
    offloaded = asked[:2] + b"\0\0" + asked[4:]
    udp = asked[:9] + b"\x11" + asked[10:]
    short_offset = asked[:32] + b"\x40" + asked[33:]
    long_offset = asked[:32] + b"\xf0" + asked[33:]
    for odd in (
        fragments,
        [with_options],
        [offloaded],
        [udp, asked],
        [short_offset, asked],
        [long_offset, asked],
    ):
        found = told(pcap([*first[:3], *odd, *first[4:]]))
        assert b"".join(c.data for c in found.chunks) == b"askaskANSWER"


def test_any_header_byte():
    packets = session(CLIENT, BROKER)
    for ips, link in ((packets, "ethernet"), (session(CLIENT6, BROKER6), "vlan")):
        clean = pcap(ips, link)
        at = len(pcap(ips[:3], link)) + 16
        for n in range(len(LINKS[link][1](ips[3]))):
            for value in (0, 1, 0x45, 0x60, 0x80, 0xFF):
                told(clean[: at + n] + bytes([value]) + clean[at + n + 1 :])


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("beyond", [1, 4, 28, 32, 1 << 31])
def test_a_packet_longer_than_its_block(order, beyond):
    good = pcapng(session(CLIENT, BROKER), order=order)
    at = good.rindex(ethernet(session(CLIENT, BROKER)[-1])) - 8
    length = struct.pack(order + "I", 54 + 2 + beyond)
    ((_, error),) = told(good[:at] + length + good[at + 4 :]).errors
    assert "more than its block has" in error


# ---- what a connection goes through

ENDS = [(CLIENT, BROKER), (("10.0.0.1", 40001), BROKER), (CLIENT6, BROKER6), (("10.0.0.3", 40000), BROKER)]


def busy(rng: random.Random, turns: int, loss: float, window: int) -> list[tuple[int, bytes]]:
    """(nanoseconds, packet) of some connections at once: late, lost, repeated, reset, reused."""
    flows = {}
    sent = []
    now = SECOND
    for _ in range(turns):
        ends = rng.choice(ENDS)
        if ends not in flows:
            flows[ends] = c, b = [rng.choice([rng.getrandbits(32), (1 << 32) - 20]) for _ in ends]
            if rng.random() < 0.8:
                sent.append((now, ip_tcp(*ends, c - 1, flags=SYN)))
                sent.append((now, ip_tcp(*ends[::-1], b - 1, flags=SYN | ACK, ack=c)))
        flow, side = flows[ends], rng.randrange(2)
        src, dst = ends[side], ends[1 - side]
        data = rng.randbytes(rng.choice([0, 1, 5, 5, 300]))
        flags = rng.choice([ACK] * 30 + [FIN | ACK, RST, RST | ACK, 0, PSH | ACK])
        back = rng.choice([0] * 20 + [3])
        sent.append((now, ip_tcp(src, dst, flow[side] - back, data, flags, flow[1 - side])))
        flow[side] += len(data) - back
        if flags & (FIN | RST) and rng.random() < 0.7:
            del flows[ends]
        elif rng.random() < 0.01:
            flow[side] += rng.choice([1000, 1 << 27, 1 << 31])
        now += rng.choice([1000, 1000, SECOND, 100 * SECOND]) if rng.random() < 0.05 else 1000
    kept = [packet for packet in sent if rng.random() >= loss]
    kept += [rng.choice(kept) for _ in range(len(kept) // 20)]
    places = [n + rng.random() * window for n in range(len(kept))]
    return [kept[n] for n in sorted(range(len(kept)), key=places.__getitem__)]


@settings(max_examples=60, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 120),
    st.sampled_from([0, 0, 0.01, 0.2]),
    st.sampled_from([0, 0, 3, 60]),
    st.sampled_from([None, TINY, Limits(reorder_window=1)]),
    st.sampled_from([1 << 30, 3000]),
)
@example(random.Random(1), 1500, 0.0, 0, None, 1 << 30)
@example(random.Random(2), 1500, 0.01, 3, None, 4096)
@example(random.Random(3), 1500, 0.01, 0, TINY, 1 << 30)
def test_busy_connections(rng, turns, loss, window, limits, step):
    records = [
        pcap_record(ethernet(ip), time=divmod(ts, SECOND)) for ts, ip in busy(rng, turns, loss, window)
    ]
    half = len(records) // 2
    header = pcap_header(magic=0xA1B23C4D)
    told(header + b"".join(records), step=step, limits=limits)
    told(header + b"".join(records[:half]), header + b"".join(records[half:]), step=step, limits=limits)


@pytest.mark.parametrize(("count", "limits"), [(2100, None), (300, Limits(connections=100, ended=50))])
def test_many_connections(count, limits):
    packets = []
    for n in range(count):
        packets += session((f"10.1.{n >> 8}.{n & 255}", 40000), BROKER)
    order = sorted(range(len(packets)), key=lambda n: (n % 10 + n // 10 % 7, n))
    found = told(pcap([packets[n] for n in order]), limits=limits)
    assert found.streams.tally.delivered == count * 12 or limits


def test_a_hole_is_given_up_when_another_connection_s_packet_comes_late_enough():
    c = ip_tcp(CLIENT, BROKER, 1, b"no hole")
    other, hole = session(("10.0.0.9", 1), BROKER), ip_tcp(CLIENT, BROKER, 100, b"behind")
    times = [*range(10), 10, 11, 5000, 5001]
    packets = [*other[:3], *session(CLIENT, BROKER, isn=(0, 0))[:3], c, hole, *other[3:]]
    records = [pcap_record(ethernet(ip), time=(t, 0)) for t, ip in zip(times, packets, strict=False)]
    found = told(pcap_header() + b"".join(records))
    assert [c.lost for c in found.chunks if c.data == b"behind"] == [92]


# ---- damaged files

PCAP = pcap([ip for ends in ENDS for ip in session(*ends)])
PCAPNG = pcapng([ip for ends in ENDS for ip in session(*ends)])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([PCAP, PCAPNG]),
    st.lists(
        st.tuples(
            st.integers(0, 4000),
            st.one_of(
                st.sampled_from([b"", b"\0", b"\xff", b"\xff" * 4, b"\0\0\0\x40"]), st.binary(max_size=4)
            ),
            st.sampled_from([0, 1, 4, 4, 16]),
        ),
        max_size=4,
    ),
    st.integers(0, 4000),
    st.sampled_from([1 << 30, 700]),
)
def test_mutated_files(data, changes, end, step):
    for at, new, length in changes:
        data = data[:at] + new + data[at + (length if length == 16 else len(new)) :]
    told(data[: max(end, 100)] if end % 3 == 0 else data, step=step)


@pytest.mark.parametrize(
    "data", [PCAP[:24], PCAPNG[:28], PCAPNG[:48], PCAP[:30], PCAPNG[:70], section() + block(6, b"")]
)
def test_no_packets(data):
    assert told(data).firsts in ([None], [])


# ---- runs


def scanned(data: bytes):
    """The items of a capture, all of them."""
    with open_capture("-", stdin=io.BytesIO(data)) as capture:
        return [
            item for items in scan.scanner(capture).batches(LinkDecoder(), Reassembler()) for item in items
        ]


@needs_compiler
def test_a_run_is_chunks_that_follow_one_another():
    opened, run, answer, *closed = scanned(pcap(session(CLIENT, BROKER)))
    assert (opened.opened, [c.closed for c in closed]) == (True, [True, True])
    assert (len(run), run.size, run.src, run.dst, run.session) == (2, 6, CLIENT, BROKER, 0)
    assert (run.ts, run.packet) == (7 * SECOND + 3000, 4)
    assert (run.last_ts, run.last_packet, run.latest) == (7 * SECOND + 5000, 6, 7 * SECOND + 5000)
    before = run.chunks()
    assert before == [
        Chunk(7 * SECOND + 3000, run.src, run.dst, b"ask", packet=4),
        Chunk(7 * SECOND + 5000, run.src, run.dst, b"ask", packet=6),
    ]
    assert run.data() == b"askask"
    assert run.data() is run.data()
    assert run.chunks() == before
    assert [run.mark(n)[1] for n in range(6)] == [4, 4, 4, 6, 6, 6]
    assert run.mark(3)[0] == 7 * SECOND + 5000
    for outside in (-1, 6):
        with pytest.raises(IndexError):
            run.mark(outside)
    assert (answer.data(), answer.chunks()[0].data, answer.src) == (b"ANSWER", b"ANSWER", BROKER)


@needs_compiler
def test_a_run_of_many_packets():
    packets = session(CLIENT, BROKER)[:3]
    packets += [ip_tcp(CLIENT, BROKER, 1001 + n, b"%c" % (n & 0xFF), ack=5001) for n in range(1000)]
    (run,) = [item for item in scanned(pcap(packets)) if type(item) is not Chunk]
    assert (len(run), run.data()) == (1000, bytes(n & 0xFF for n in range(1000)))
    assert [run.mark(n)[1] for n in range(1000)] == [*range(4, 1004)]
    assert told(pcap(packets)).runs == 1


@needs_compiler
def test_another_connection_ends_a_run():
    packets = session(CLIENT, BROKER)
    other = session(("10.0.0.9", 1), BROKER)
    alone = [*packets[:3], *other[:3], *packets[3:6]]
    between = [*packets[:3], *other[:3], *packets[3:5], other[3], packets[5]]
    assert [len(item) for item in scanned(pcap(alone)) if type(item) is not Chunk] == [2]
    assert [len(item) for item in scanned(pcap(between)) if type(item) is not Chunk] == [1, 1, 1]


@needs_compiler
def test_the_slot_is_of_the_session():
    packets = session(CLIENT, BROKER)
    with open_capture("-", stdin=Trickle(pcap(packets[:7] * 2), 1)) as capture:
        slots = []
        for items in scan.scanner(capture).batches(LinkDecoder(), Reassembler()):
            for item in items:
                if type(item) is not Chunk:
                    slots.append(item.slot)
                    item.slot = "mine"
    assert slots == [None, "mine", "mine"]


@needs_compiler
def test_a_session_that_is_done_holds_nothing():
    _, run, *_ = scanned(pcap(session(CLIENT, BROKER)))
    run.slot = "late"
    assert run.slot is None


def test_a_pipe_gives_its_chunks_as_they_come():
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as pipe, os.fdopen(sink, "wb", buffering=0) as out:
        out.write(pcap([]))
        with open_capture("-", stdin=pipe) as capture:
            out.write(pcap_record(ethernet(session(CLIENT, BROKER)[0])))
            scanner = scan.scanner(capture)
            assert scanner.first() == 0
            batches = scanner.batches(LinkDecoder(), Reassembler())
            got = []
            for ip in session(CLIENT, BROKER)[1:4]:
                got += next(batches)
                out.write(pcap_record(ethernet(ip)))
            out.close()
            got += [item for items in batches for item in items]
    assert [c.data for c in scan.chunks(got)] == [b"", b"ask"]


@needs_compiler
def test_without_asking_for_the_first_packet():
    for data in (PCAP, PCAPNG):
        asked = Told(scan.scanner, [("-", io.BytesIO(data))])
        not_asked = Told(scan.scanner, [("-", io.BytesIO(data))], expect_first=False)
        assert asked.chunks == not_asked.chunks
        assert asked.firsts == [7 * SECOND]
