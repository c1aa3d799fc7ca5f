# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The way of ordinary requests and responses in C: from a run of a connection's bytes to the lines of its exchanges.

A lane takes a connection's runs while all is plain: both directions cut at known places, every answer's request known.
It cuts frames, keeps requests until their answers come, and makes lines. A pair that is no line goes to the dialect,
which makes an exchange of it; at the first frame that is out of the ordinary the lane stops and gives back all that it
holds. So it decides nothing of its own: framer, headers, matcher and dialect specify it, and the tests hold it to them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memcpy

from kwsniff.capture._run cimport Run
from kwsniff.output._line cimport Kind, Line, Lines, Place
from kwsniff.wire._fast cimport Byte

from kwsniff.conversation.framer import RawFrame

cdef enum:
    PRODUCE = 0
    FETCH = 1
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    SASL_AUTHENTICATE = 36
    TRANSACTIONAL = 3  # the first version of Produce with a transactional id, and with compact strings
    COMPACT = 9
    SESSIONS = 7  # the first version of Fetch with sessions (KIP-227), and without a replica id in front
    NO_REPLICA_ID = 15
    MOST_CLIENT_IDS = 1000  # that are remembered: kafka._CLIENT_IDS

cdef bytes NO_SESSION = bytes(4) + b"\xff\xff\xff\xff"


cdef inline int be16(const Byte* at) noexcept nogil:
    return (at[0] << 8) | at[1]


cdef inline int32_t be32(const Byte* at) noexcept nogil:
    return <int32_t>((<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3])


cdef struct Seen:  # of a frame: when its first and last byte came, the packet of its last, and where it begins
    int64_t ts
    int64_t end
    int64_t packet
    int64_t offset


cdef class Half:
    """One direction: where its next frame begins in the stream, and what is there of it."""

    cdef int64_t offset
    cdef list pieces  # (bytes, ts, packet) of each chunk
    cdef Py_ssize_t held, need  # bytes there are, and there will be with the size prefix; 0: not known yet
    cdef int64_t decoded  # bytes of frames since the lane was entered


@cython.freelist(256)
cdef class Waiting:
    """A request whose answer has not come. `odd`: it takes the dialect to say what it asks for."""

    cdef bytes raw, client, file_text
    cdef object file
    cdef tuple connection
    cdef Kind kind
    cdef Seen seen
    cdef Py_ssize_t body_at
    cdef bint odd


cdef class Lane:
    """For one connection. dialect: its KafkaDialect; lines: output._line.Lines."""

    cdef object dialect, conn, peer, file
    cdef object topic_names
    cdef tuple connection
    cdef dict waiting, elsewhere
    cdef set clients
    cdef bytes client, client_raw, file_text
    cdef Lines lines
    cdef Half asked, answered
    cdef list events
    cdef Py_ssize_t max_frame
    cdef bint named  # file_text is of this file
    cdef readonly bint active

    def __init__(self, Lines lines, dialect, conn, Py_ssize_t max_frame):
        self.lines, self.dialect, self.conn, self.max_frame = lines, dialect, conn, max_frame
        self.waiting, self.elsewhere, self.clients = {}, dialect.waiting, dialect.client_ids
        self.topic_names = dialect.topic_names
        self.asked, self.answered = Half(), Half()

    def enter(self, asked, answered):
        """asked, answered: (offset, pieces) of each direction, as `Framer.surrender` gives them."""
        self.active = True
        for half, given in ((self.asked, asked), (self.answered, answered)):
            set_half(half, given[0], given[1])
        self.asked.decoded = self.answered.decoded = 0

    def leave(self):
        """((offset, pieces, bytes decoded) of either direction); the requests are in the dialect again."""
        self.active = False
        waiting, self.waiting = self.waiting, {}
        cdef Waiting request
        for request in waiting.values():
            self.tell(request)
        return [(half.offset, half.pieces, half.decoded) for half in (self.asked, self.answered)]

    def feed(self, Run run, bint asking, file):
        """The events of a run of requests, or of responses. `active` is False then if it is time to leave."""
        cdef list events = []
        cdef Half half = self.asked if asking else self.answered
        cdef const Byte* base
        cdef Py_ssize_t at
        self.events = events
        if file is not self.file or not self.named:
            self.meet_file(file)
        if self.dialect.peer is not self.peer:
            self.meet_peer()
        if run.count > 1:
            run.data()
        base = <const Byte*>run.base() + run.spans[0].start
        at = self.first(half, run, base, asking) if half.held else 0
        if self.active:
            at = self.others(half, run, base, at, asking)
        keep(half, run, base, at)
        self.events = None
        return events

    # Frames

    cdef Py_ssize_t first(self, Half half, Run run, const Byte* base, bint asking) except -1:
        """The frame that began in an earlier run -> where the next one begins."""
        cdef Py_ssize_t missing, last
        cdef Seen seen
        cdef bytes frame
        if not half.need:
            if half.held + run.size < 4:
                return 0
            half.need = 4 + frame_size(half, base)
            if not 4 <= half.need <= 4 + self.max_frame:
                self.active = False
                return 0
        missing = half.need - half.held
        if missing > run.size:
            return 0
        if missing < 0:  # a whole frame was surrendered: nobody should, and it is for the framer to cut
            self.active = False
            return 0
        frame = joined(half, base, missing)
        last = run.index(missing - 1) if missing else 0
        seen.ts, seen.end = (<tuple>half.pieces[0])[1], run.spans[last].ts
        seen.packet, seen.offset = run.spans[last].packet, half.offset
        if not self.frame(<const Byte*>PyBytes_AS_STRING(frame), half.need - 4, frame, &seen, asking):
            self.active = False
            return 0
        half.decoded += half.need
        set_half(half, half.offset + half.need, [])
        return missing

    cdef Py_ssize_t others(self, Half half, Run run, const Byte* base, Py_ssize_t at, bint asking) except -1:
        """The frames that are whole in the run -> where the first that is not begins."""
        cdef Py_ssize_t size, span = 0
        cdef Seen seen
        if half.held:
            return at
        while at + 4 <= run.size:
            size = be32(base + at)
            if not 0 <= size <= self.max_frame:
                self.active = False
                break
            if at + 4 + size > run.size:
                break
            while run.spans[span].end <= at:
                span += 1
            seen.ts, seen.offset = run.spans[span].ts, half.offset
            while run.spans[span].end < at + 4 + size:
                span += 1
            seen.end, seen.packet = run.spans[span].ts, run.spans[span].packet
            if not self.frame(base + at + 4, size, None, &seen, asking):
                self.active = False
                break
            at += 4 + size
            half.offset += 4 + size
            half.decoded += 4 + size
        return at

    cdef bint frame(
        self, const Byte* raw, Py_ssize_t size, bytes owner, const Seen* seen, bint asking
    ) except -1:
        """False: it is out of the ordinary, and as if it had not been seen. owner: the bytes themselves, or None."""
        return (self.request if asking else self.response)(self, raw, size, owner, seen)

    cdef bint request(self, const Byte* raw, Py_ssize_t size, bytes owner, const Seen* seen) except -1:
        cdef int api, version
        cdef Py_ssize_t body_at
        cdef int32_t correlation_id
        cdef Kind kind
        cdef Waiting waiting
        if size < 10:
            return False
        api, version, correlation_id = be16(raw), be16(raw + 2), be32(raw + 4)
        kind = self.lines.kind(api, version)
        if not kind.known or api in (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE):
            return False
        body_at = self.read_client(raw, size)
        if body_at < 0:
            return False
        if kind.request_tags:
            # They are empty in every client that is known; others take the long way.
            if body_at >= size or raw[body_at]:
                return False
            body_at += 1
        if api == PRODUCE and not wants_answer(raw, size, body_at, version):
            return False
        if correlation_id in self.waiting or correlation_id in self.elsewhere:
            return False
        waiting = Waiting.__new__(Waiting)
        waiting.raw = PyBytes_FromStringAndSize(<const char*>raw, size) if owner is None else owner
        waiting.kind, waiting.seen, waiting.body_at = kind, seen[0], body_at
        waiting.client, waiting.connection = self.client, self.connection
        waiting.file, waiting.file_text = self.file, self.file_text
        waiting.odd = self.connection is None or self.file_text is None or (api == FETCH and has_session(raw, size, body_at, version))
        self.waiting[correlation_id] = waiting
        return True

    cdef bint response(self, const Byte* raw, Py_ssize_t size, bytes owner, const Seen* seen) except -1:
        cdef Waiting waiting
        cdef Place asked, answered
        cdef Line line
        if size < 4:
            return False
        correlation_id = be32(raw)
        waiting = self.waiting.get(correlation_id)
        if waiting is None:
            return self.answer_elsewhere(correlation_id, raw, size, seen)
        del self.waiting[correlation_id]
        answered.body_at = 5 if waiting.kind.response_tags else 4
        if not waiting.odd and size >= answered.body_at and (answered.body_at == 4 or not raw[4]):
            asked.raw, asked.size = <const Byte*>PyBytes_AS_STRING(waiting.raw), PyBytes_GET_SIZE(waiting.raw)
            asked.body_at = waiting.body_at
            place(&asked, &waiting.seen)
            answered.raw, answered.size = raw, size
            place(&answered, seen)
            line = self.lines.pair(
                waiting.kind, waiting.connection, waiting.client, correlation_id, waiting.raw, &asked, &answered,
                waiting.file_text, self.topic_names,
            )
            if line is not None:
                self.events.append(line)
                return True
        self.tell(waiting)
        self.events += self.dialect.response(raw_frame(raw, size, owner, seen))
        return True

    cdef bint answer_elsewhere(
        self, correlation_id, const Byte* raw, Py_ssize_t size, const Seen* seen
    ) except -1:
        """The answer to a request that came before the lane was entered; those that change the peer stop it."""
        asked = self.elsewhere.get(correlation_id)
        if asked is None:
            return False
        for waiting in asked:
            if waiting.frame.api == SASL_AUTHENTICATE:
                return False
        self.dialect.file = self.file
        self.events += self.dialect.response(raw_frame(raw, size, None, seen))
        return True

    cdef int tell(self, Waiting waiting) except -1:
        """The dialect learns of a request."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(waiting.raw)
        self.dialect.file = waiting.file
        self.dialect.request(
            raw_frame(<const Byte*>PyBytes_AS_STRING(waiting.raw), size, waiting.raw, &waiting.seen)
        )
        self.dialect.file = self.file
        return 0

    # What requests have in common

    cdef Py_ssize_t read_client(self, const Byte* raw, Py_ssize_t size) except -2:
        """Where the client id ends; -1: the bytes cannot be one."""
        cdef Py_ssize_t length = be16(raw + 8)
        if length == 0xFFFF:
            if self.client_raw is not None or self.client is None:
                self.meet_client(None)
            return 10
        if length > 0x7FFF or 10 + length > size:
            return -1
        if (
            self.client_raw is None or PyBytes_GET_SIZE(self.client_raw) != length
            or memcmp(PyBytes_AS_STRING(self.client_raw), raw + 10, length)
        ):
            try:
                self.meet_client(PyBytes_FromStringAndSize(<const char*>raw + 10, length))
            except UnicodeDecodeError:
                return -1
        return 10 + length

    cdef int meet_client(self, bytes raw) except -1:
        client_id, self.client = self.lines.client_of(raw)
        if len(self.clients) < MOST_CLIENT_IDS:
            self.clients.add(client_id)
        self.client_raw = raw
        return 0

    cdef int meet_file(self, file) except -1:
        self.file, self.file_text, self.named = file, None, True
        try:
            self.file_text = self.lines.text_of(file)
        except UnicodeEncodeError:
            pass
        return 0

    cdef int meet_peer(self) except -1:
        self.peer = self.dialect.peer
        try:
            self.connection = self.lines.connection_text(self.conn, self.peer)
        except UnicodeEncodeError:
            self.connection = None
        return 0


cdef int set_half(Half half, int64_t offset, list pieces) except -1:
    half.offset, half.pieces, half.need = offset, pieces, 0
    half.held = 0
    for piece in pieces:
        half.held += PyBytes_GET_SIZE((<tuple>piece)[0])
    return 0


cdef int keep(Half half, Run run, const Byte* base, Py_ssize_t at) except -1:
    """What is in the run from `at` on belongs to a frame that is not whole, or is not for the lane."""
    cdef Py_ssize_t span, size
    if at >= run.size:
        return 0
    for span in range(run.index(at), run.count):
        size = run.spans[span].end - at
        data = PyBytes_FromStringAndSize(<const char*>base + at, size)
        half.pieces.append((data, run.spans[span].ts, run.spans[span].packet))
        half.held += size
        at += size
    return 0


cdef Py_ssize_t frame_size(Half half, const Byte* base) except? -7:
    """The size prefix of a frame of which there are pieces, and then the bytes at `base`."""
    cdef bytes prefix = b"".join([(<tuple>piece)[0] for piece in half.pieces[:4]])[:4]
    cdef Py_ssize_t there = PyBytes_GET_SIZE(prefix)
    prefix += PyBytes_FromStringAndSize(<const char*>base, 4 - there)
    return be32(<const Byte*>PyBytes_AS_STRING(prefix))


cdef bytes joined(Half half, const Byte* base, Py_ssize_t missing):
    """The frame behind its size prefix, made of the pieces and `missing` bytes at `base`."""
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, half.need - 4)
    cdef char* to = PyBytes_AS_STRING(frame)
    cdef Py_ssize_t size, skip = 4
    cdef bytes data
    for piece in half.pieces:
        data = <bytes>(<tuple>piece)[0]
        size = PyBytes_GET_SIZE(data)
        if skip >= size:
            skip -= size
            continue
        memcpy(to, PyBytes_AS_STRING(data) + skip, size - skip)
        to += size - skip
        skip = 0
    memcpy(to, base + skip, missing - skip)
    return frame


cdef raw_frame(const Byte* raw, Py_ssize_t size, bytes owner, const Seen* seen):
    data = PyBytes_FromStringAndSize(<const char*>raw, size) if owner is None else owner
    return RawFrame(data, size + 4, 0, seen.ts, seen.end, seen.packet, seen.offset)


cdef inline void place(Place* to, const Seen* seen) noexcept:
    to.ts, to.end, to.packet, to.wire_size = seen.ts, seen.end, seen.packet, to.size + 4


cdef bint wants_answer(const Byte* raw, Py_ssize_t size, Py_ssize_t at, int version) noexcept:
    """Whether a Produce has acks other than 0, for sure: `headers.acks`."""
    cdef uint32_t length
    if version >= COMPACT:
        if at >= size or raw[at] >= 0x80:
            return False
        length = raw[at]
        at += 1 + max(length, 1) - 1
    elif version >= TRANSACTIONAL:
        if at + 2 > size:
            return False
        length = be16(raw + at)
        at += 2 if length > 0x7FFF else 2 + length
    return at + 2 <= size and be16(raw + at) != 0


cdef bint has_session(const Byte* raw, Py_ssize_t size, Py_ssize_t at, int version) noexcept:
    """Whether a Fetch has or wants a session: `fetch_sessions`."""
    if version < SESSIONS:
        return False
    at += 17 if version < NO_REPLICA_ID else 13
    return at + 8 > size or memcmp(raw + at, PyBytes_AS_STRING(NO_SESSION), 8) != 0
