# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The way of an ordinary packet in C: capture record, link layer, IP, TCP, and into a run of its direction.

Ordinary is a packet record of pcap or pcapng, an IPv4 header without options or an IPv6 header without extension
headers, not a fragment, whole, and a TCP segment of a stream that is `plain`, with ACK and no other flag of weight,
that is empty or begins at the stream's next byte. Everything else goes to the parser, `LinkDecoder` and
`Reassembler`, which specify all of this; state is theirs, and only they change what is not a counter here. The
tests hold this scanner equal to `scan.Scanner`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kwsniff.capture._run cimport ConnectionState, Run, Span, StreamState
from kwsniff.capture.parsed import Parsed
from kwsniff.capture.pcap import PcapParser
from kwsniff.model import Packet

ctypedef const uint8_t* Bytes

cdef enum:
    HALF = 0x80000000
    IPV4 = 4
    IPV6 = 6
    ACK = 0x10
    CONTROL = 0x17  # SYN, RST, FIN, ACK
    SECTION = 0x0A0D0D0A
    ENHANCED = 6
    MOST_INTERFACES = 64  # of those beyond, packets are left to the parser
    FEWEST_KNOWN = 4096

cdef int64_t MOST_TIME = INT64_MAX >> 2


cdef struct Interface:
    bint simple
    uint32_t linktype
    int64_t multiplier, offset


include "_link.pxi"


cdef class Scanner:
    """See kwsniff.capture.scan."""

    cdef readonly object last
    cdef object capture, parser
    cdef Interface interfaces[MOST_INTERFACES]
    cdef Py_ssize_t interface_count
    cdef Py_ssize_t at              # in the capture's window: up to here all is done
    cdef int64_t number, ts         # of the last packet
    cdef object pending             # a packet that the parser parsed and nobody has decoded
    cdef bint peek, found           # looking for the first packet only
    # The state that is fed
    cdef object decode, feed, streams, by_ends, tally
    cdef int64_t segments, delivered, deadline
    # Streams by the bytes of their addresses and ports: a memory of streams.by_ends, in which those that are
    # no more may stand (they are not plain)
    cdef dict known
    cdef Py_ssize_t sweep_at
    cdef StreamState recent
    # The window, what was found in it, and the run that grows
    cdef bytes window
    cdef Bytes base
    cdef list items
    cdef StreamState running
    cdef Span* spans
    cdef Py_ssize_t count, room

    def __cinit__(self):
        self.room = 256
        self.spans = <Span*>PyMem_Malloc(self.room * sizeof(Span))
        if self.spans == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.spans)

    def __init__(self, capture):
        self.capture = capture
        self.parser = capture.parser
        self.known = {}
        self.sweep_at = FEWEST_KNOWN
        self.reload()

    def first(self):
        self.peek = True
        while True:
            parsed = self.scan()
            if self.found:
                self.peek = False
                return self.ts
            if not self.capture.bring(parsed):
                return None
            self.at = 0

    def batches(self, links, streams):
        self.decode, self.feed, self.streams = links.decode, streams.feed, streams
        self.by_ends, self.tally = streams._streams, streams.tally
        self.peek = False
        while True:
            self.items = []
            self.resume()
            if self.pending is not None:
                self.slowly(self.pending, None)
                self.pending = None
            parsed = self.scan()
            self.end_run()
            self.suspend()
            if self.number:
                self.last = self.ts
            items, self.items = self.items, None
            yield items
            if not self.capture.bring(parsed):
                return
            self.at = 0

    # Windows

    cdef object scan(self):
        """Everything whole in the window. What the parser makes of the rest."""
        self.window = self.capture.window
        self.base = <Bytes>PyBytes_AS_STRING(self.window)
        if isinstance(self.parser, PcapParser):
            self.pcap()
        else:
            self.pcapng()
        if self.found and self.peek:
            return None
        self.parser.count = self.number
        rest = self.parser.parse(self.window[self.at:])
        self.reload()
        return Parsed([], self.at, rest.need, rest.skip, rest.fault)

    cdef int reload(self) except -1:
        """Take over what the parser knows."""
        cdef Py_ssize_t n
        cdef Interface* interface
        self.number = self.parser.count
        if isinstance(self.parser, PcapParser):
            return 0
        described = self.parser.interfaces
        self.interface_count = min(len(described), <Py_ssize_t>MOST_INTERFACES)
        for n in range(self.interface_count):
            linktype, _, multiplier, divisor, offset = described[n]
            interface = &self.interfaces[n]
            interface.simple = divisor == 1 and -MOST_TIME < offset < MOST_TIME
            if interface.simple:
                interface.linktype, interface.multiplier, interface.offset = linktype, multiplier, offset
        return 0

    cdef int pcap(self) except -1:
        cdef Py_ssize_t end = PyBytes_GET_SIZE(self.window), header = self.parser.record_header, stop
        cdef int64_t fraction = self.parser.fraction
        cdef uint32_t linktype = self.parser.linktype
        cdef bint big = self.parser.order == ">"
        cdef Bytes record
        cdef uint32_t length
        while self.at + header <= end:
            record = self.base + self.at
            length = u32(record + 8, big)
            stop = self.at + header + length
            if stop > end:
                break
            self.ts = <int64_t>u32(record, big) * 1_000_000_000 + <int64_t>u32(record + 4, big) * fraction
            if self.peek:
                self.found = True
                break
            self.number += 1
            self.packet(linktype, record + header, length, u32(record + 12, big))
            self.at = stop
        return 0

    cdef int pcapng(self) except -1:
        cdef Py_ssize_t end = PyBytes_GET_SIZE(self.window)
        cdef bint big = self.parser.order == ">"
        cdef Bytes block
        cdef uint32_t kind, size, length
        while self.at + 12 <= end:
            block = self.base + self.at
            kind = u32(block, big)
            # The kind of a section header is the same in both orders; it tells the order of all behind it.
            size = u32(block + 4, block[8] == 0x1A if kind == SECTION else big)
            if size < 12 or size & 3 or self.at + <Py_ssize_t>size > end:
                break
            if kind != ENHANCED or not self.is_ordinary(block, size, big):
                if not self.block_slowly(size):
                    break
                big = self.parser.order == ">"
            elif self.peek:
                self.found = True
            else:
                self.number += 1
                length = u32(block + 20, big)
                self.packet(
                    self.interfaces[u32(block + 8, big)].linktype, block + 28, length, u32(block + 24, big)
                )
                self.at += size
            if self.peek and self.found:
                break
        return 0

    cdef bint is_ordinary(self, Bytes block, uint32_t size, bint big) noexcept:
        """A sound packet block of an interface with a clock that counts 1 to 10**9 a second. Sets its time."""
        cdef uint32_t index, length
        cdef uint64_t time
        cdef Interface* interface
        if size < 32 or u32(block + size - 4, big) != size:
            return False
        index, length = u32(block + 8, big), u32(block + 20, big)
        if index >= self.interface_count or length > size - 32:
            return False
        interface = &self.interfaces[index]
        time = <uint64_t>u32(block + 12, big) << 32 | u32(block + 16, big)
        if not interface.simple or time > <uint64_t>(MOST_TIME // interface.multiplier):
            return False
        self.ts = <int64_t>time * interface.multiplier + interface.offset
        if self.ts < 0:
            self.ts = 0
        return True

    cdef bint block_slowly(self, uint32_t size) except -1:
        """Give a whole block to the parser. False: it is at fault."""
        cdef int64_t ts
        self.parser.count = self.number
        parsed = self.parser.parse(self.window[self.at : self.at + size])
        self.reload()
        if parsed.fault is not None:
            # The parser's count and state are as they were: it will say the same of the rest of the window.
            return False
        self.at += size
        for packet in parsed.packets:
            self.ts = packet.ts
            if self.peek:
                self.found, self.pending = True, packet
            else:
                self.slowly(packet, None)
        return True

    # Packets

    cdef int packet(self, uint32_t linktype, Bytes data, Py_ssize_t length, uint32_t wire_length) except -1:
        cdef int version = 0
        cdef Py_ssize_t start, end, size, key_size
        cdef Py_ssize_t at = find_ip(linktype, data, length, &version)
        cdef Bytes ip, tcp, key
        cdef StreamState stream
        if at < 0 or length < at + 34:
            return self.odd(linktype, data, length, wire_length, NULL, 0)
        ip = data + at
        if version == IPV4:
            if ip[0] != 0x45 or ip[9] != 6 or ip[6] & 0x3F or ip[7]:
                return self.odd(linktype, data, length, wire_length, NULL, 0)
            tcp, key, key_size = ip + 20, ip + 12, 12
            end = at + be16(ip + 2)
        else:
            if length < at + 54 or ip[0] >> 4 != 6 or ip[6] != 6 or not (ip[4] | ip[5]):
                return self.odd(linktype, data, length, wire_length, NULL, 0)
            tcp, key, key_size = ip + 40, ip + 8, 36
            end = at + 40 + be16(ip + 4)
        start = (tcp - data) + (tcp[12] >> 4) * 4
        size = end - start
        if tcp[12] < 0x50 or size < 0:
            return self.odd(linktype, data, length, wire_length, NULL, 0)
        stream = self.stream_of(key, key_size)
        if (
            stream is None
            or not stream.plain
            or tcp[13] & CONTROL != ACK
            or self.ts > self.deadline
            or (size and (end > length or be32(tcp + 4) != <uint32_t>stream.next))
        ):
            return self.odd(linktype, data, length, wire_length, key, key_size)
        self.segment(stream, be32(tcp + 8), data + start, size)
        return 0

    cdef StreamState stream_of(self, Bytes key, Py_ssize_t size):
        """The stream with these addresses and ports; one that is not plain may have been followed by another."""
        cdef StreamState recent = self.recent
        cdef PyObject* found
        if recent is not None:
            if is_key(recent.key, key, size):
                return recent
            if is_key(recent.peer.key, key, size):
                self.recent = recent.peer
                return recent.peer
        found = PyDict_GetItemWithError(self.known, PyBytes_FromStringAndSize(<const char*>key, size))
        if found == NULL:
            return None
        self.recent = <StreamState>found
        return self.recent

    cdef int segment(self, StreamState stream, uint32_t ack, Bytes payload, Py_ssize_t size) except -1:
        """As `Reassembler.feed` does with a stream that is plain."""
        cdef StreamState peer = stream.peer
        cdef ConnectionState connection = stream.connection
        cdef Span* span
        self.segments += 1
        connection.tick += 1
        connection.last = self.segments
        if peer._acked < 0 or <uint32_t>(ack - <uint32_t>peer._acked) < <uint32_t>HALF:
            peer._acked = ack
        if not size:
            return 0
        stream.next += size
        stream.strays = 0
        self.delivered += size
        if stream is not self.running:
            self.end_run()
            self.running = stream
        elif self.count == self.room:
            self.grow()
        span = self.spans + self.count
        span.ts = self.ts
        span.packet = self.number
        span.start = payload - self.base
        span.end = size + (self.spans[self.count - 1].end if self.count else 0)
        self.count += 1
        return 0

    cdef int grow(self) except -1:
        cdef Span* spans = <Span*>PyMem_Realloc(self.spans, 2 * self.room * sizeof(Span))
        if spans == NULL:
            raise MemoryError
        self.spans = spans
        self.room *= 2
        return 0

    cdef int end_run(self) except -1:
        cdef Run run
        cdef Py_ssize_t count = self.count
        if not count:
            return 0
        run = Run.__new__(Run)
        run.spans = &run.one
        if count > 1:
            run.spans = <Span*>PyMem_Malloc(count * sizeof(Span))
            if run.spans == NULL:
                run.spans = &run.one
                raise MemoryError
        memcpy(run.spans, self.spans, count * sizeof(Span))
        run.count = count
        run.size = self.spans[count - 1].end
        run.stream = self.running
        run.block = self.window
        self.items.append(run)
        self.running = None
        self.count = 0
        return 0

    # Out of the ordinary

    cdef int odd(
        self, uint32_t linktype, Bytes data, Py_ssize_t length, uint32_t wire_length, Bytes key, Py_ssize_t size
    ) except -1:
        packet = Packet(
            self.ts,
            linktype,
            PyBytes_FromStringAndSize(<const char*>data, length),
            wire_length,
            None,
            self.number,
        )
        return self.slowly(packet, None if key == NULL else PyBytes_FromStringAndSize(<const char*>key, size))

    cdef int slowly(self, object packet, bytes key) except -1:
        segment = self.decode(packet)
        if segment is None:
            return 0
        self.suspend()
        chunks = self.feed(segment)
        self.resume()
        if chunks:
            self.end_run()
            self.items.extend(chunks)
        if key is not None:
            stream = self.by_ends.get((segment.src, segment.dst))
            if stream is not None:
                self.remember(stream, key)
        return 0

    cdef int remember(self, StreamState stream, bytes key) except -1:
        stream.key = key
        self.known[key] = stream
        self.recent = stream
        if len(self.known) >= self.sweep_at:
            self.known = {k: s for k, s in self.known.items() if (<StreamState>s).plain}
            self.sweep_at = max(2 * len(self.known), <Py_ssize_t>FEWEST_KNOWN)
        return 0

    cdef int suspend(self) except -1:
        """Bring the reassembler's own counters up to date."""
        self.tally.segments = self.segments
        self.tally.delivered += self.delivered
        self.delivered = 0
        return 0

    cdef int resume(self) except -1:
        self.segments = self.tally.segments
        deadline = self.streams._deadline
        self.deadline = INT64_MAX if deadline > INT64_MAX else deadline
        return 0


cdef inline bint is_key(bytes known, Bytes key, Py_ssize_t size) noexcept:
    return (
        known is not None
        and PyBytes_GET_SIZE(known) == size
        and not memcmp(PyBytes_AS_STRING(known), key, size)
    )
