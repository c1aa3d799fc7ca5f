# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""An ordinary exchange -> the bytes of its JSON line, straight from the wire: no dicts in between.

Ordinary is what nearly all exchanges are: whole frames of Kafka 0.8+ with nothing to repair, hide or open. For every
other one the answer is None, and `jsonl.line` with `jsonl.encode` says the same more slowly; those two are the
specification, and a test holds this to them byte for byte. Texts that stay the same come from `ordinary`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from kwsniff.wire._fast cimport (
    Byte,
    FoundError,
    FoundRecords,
    Nearest,
    Out,
    Program,
    Sink,
    Text,
    append,
    append_number,
    append_string,
    free_sink,
    reset_sink,
    topic_id_text,
)

from kwsniff import wire
from kwsniff.model import Exchange, Outcome, Protocol
from kwsniff.output import ordinary
from kwsniff.output.share import PACKETS
from kwsniff.output.times import timestamp
from kwsniff.wire._records import summary_json

cdef enum:
    API_VERSIONS = 18
    FIND_COORDINATOR = 10
    MOST_APIS = 128  # Kafka has fewer of them, and fewer versions of each
    MOST_TEXTS = 4096  # that are kept
    LONGEST_TEXT = 1024  # characters or bytes of one that is kept: a client id may have 32,767
    FEW_TOPICS = 32  # that are told apart without a table
    KEPT_ROOM = 1 << 20
    BYTES_AT_ONCE = 1 << 16
    MOST_HELD = 1 << 27  # bytes of lines that wait for their turn: beyond, frames do

cdef int64_t held = 0
cdef int64_t BLOCK = PACKETS
cdef int64_t SECOND = 1_000_000_000
cdef object ANSWERED = Outcome.ANSWERED
cdef object KAFKA = Protocol.KAFKA


class _Declined(Exception):
    """This line is for `jsonl`."""


cdef class Kind:
    """An API at a version. `known`: there is a compiled form of both of its messages."""

    def __cinit__(self, int api, int version):
        self.api, self.version = api, version
        programs = ordinary.programs(api, version)
        if programs is None:
            return
        self.request, self.response = programs
        header = wire.header_versions(api, version)
        self.known = header[0] > 0
        self.teaches = ordinary.teaches_topics(api, version)
        self.request_tags, self.response_tags = header[0] > 1, header[1] > 0
        self.before, self.behind = ordinary.header_text(api, version)


cdef class Line:
    """The line of a request and its response; `known`: when the response was all there."""

    def __dealloc__(self):
        global held
        held -= self.held


cdef class Lines:
    """options: output.present.Options, without int64_as_string where there are to be texts.

    share: output.share.Share. A pair that another process shows is a Line without text, whose making costs next to
    nothing. texts=False: that is all it is for; what this process shows is left to the long way.
    """

    def __cinit__(self, options, share, bint texts=True):
        self.options, self.share, self.texts_wanted = options, share, texts
        self.jobs, self.mine = share.jobs, share.mine
        self.body, self.records = options.body, options.records
        self.asked.decoded_records = self.answered.decoded_records = options.records
        self.kinds, self.connections, self.texts, self.clients, self.counted = {}, {}, {}, {}, {}
        self.second = -1

    def __dealloc__(self):
        free(self.line.text)
        free(self.text.text)
        free_sink(&self.asked)
        free_sink(&self.answered)

    def exchange(self, exchange):
        """(the line with its line feed, whether its answer has errors), or None."""
        cdef Place asked, answered
        cdef bytes made
        cdef Kind kind
        request, response = exchange.request, exchange.response
        if request is None or exchange.faults or exchange.tags:
            return None
        if not place_of(request, &asked) or (response is not None and not place_of(response, &answered)):
            return None
        kind = self.kind(request.api, request.version or 0)
        if not kind.known or (response is not None and kind.response_tags and answered.body_at < 5):
            return None
        self.names = exchange.topic_names
        self.told_by = exchange.ts if response is None else answered.end
        self.early = False
        try:
            made = self.write(
                kind, self.connection_text(exchange.conn, exchange.peer), self.text_of(request.client_id),
                request.correlation_id, request.raw, &asked, NULL if response is None else &answered,
                self.text_of(request.file), exchange.outcome.encode(), exchange.fetched,
            )
        except (UnicodeEncodeError, _Declined):
            return None
        return None if made is None else (made, self.answered.errors.count > 0)

    cdef Line pair(
        self, Kind kind, tuple connection, bytes client, int32_t correlation_id, bytes raw, const Place* request,
        const Place* response, bytes file, names,
    ):
        """None too where the names of topics may yet become known, or this answer tells them."""
        cdef Line line
        cdef bytes made = None
        cdef int owner = request.packet // BLOCK % self.jobs
        if kind.teaches or owner == self.mine:
            if not self.texts_wanted or held > MOST_HELD:
                return None
            made = self.text_of_pair(kind, connection, client, correlation_id, raw, request, response, file, names)
            if made is None:
                return None
        line = Line.__new__(Line)
        line.ts, line.known, line.kind = request.ts, response.end, kind
        line.owner, line.weight = owner, request.size + response.size
        if owner == self.mine:
            self.keep(line, made)
        return line

    cdef int keep(self, Line line, bytes made) except -1:
        global held
        line.text, line.held = made, PyBytes_GET_SIZE(made)
        line.errors = self.answered.errors.count > 0
        held += line.held
        return 0

    cdef bytes text_of_pair(
        self, Kind kind, tuple connection, bytes client, int32_t correlation_id, bytes raw, const Place* request,
        const Place* response, bytes file, names,
    ):
        cdef bytes made
        self.names, self.told_by, self.early = names, response.end, True
        try:
            made = self.write(
                kind, connection, client, correlation_id, raw, request, response, file, b"answered", None
            )
        except (UnicodeEncodeError, _Declined):
            return None
        return None if self.answered.learned.count else made

    def put(self, list events, Py_ssize_t start, put, turn=None):
        """Puts out the lines of events from `start` on, up to the first that is none and has none: its place.

        turn(owner): told before the lines of one process that follow one another. Those of others are passed over.
        """
        cdef list texts = []
        cdef int owner = self.mine, before = -1
        cdef bytes text
        cdef Line line
        cdef Py_ssize_t at = start, size = 0
        for at in range(start, len(events) + 1):
            if at == len(events):
                break
            event = events[at]
            if turn is not None:
                if type(event) is not Line and type(event) is not Exchange:
                    break
                owner = (<Line>event).owner if type(event) is Line else self.share.owner(event)
                if owner != before:
                    if texts:
                        put(b"".join(texts))
                        texts.clear()
                        size = 0
                    turn(owner)
                    before = owner
                if owner != self.mine:
                    continue
            if type(event) is Line:
                line = <Line>event
                text = line.text
                if line.errors:
                    line.kind.with_errors += 1
                else:
                    line.kind.fine += 1
            else:
                found = self.exchange(event) if self.texts_wanted and type(event) is Exchange else None
                if found is None:
                    break
                text = found[0]
                key = event.request.api, event.request.version, event.outcome, found[1]
                self.counted[key] = self.counted.get(key, 0) + 1
            texts.append(text)
            size += PyBytes_GET_SIZE(text)
            if size >= BYTES_AT_ONCE:
                put(b"".join(texts))
                texts.clear()
                size = 0
        if texts:
            put(b"".join(texts))
        return at

    @property
    def counts(self):
        """(API key, version, outcome, whether with errors) -> lines put out."""
        found = dict(self.counted)
        cdef Kind kind
        for kind in self.kinds.values():
            for errors, count in ((False, kind.fine), (True, kind.with_errors)):
                key = kind.api, kind.version, ANSWERED, errors
                if count:
                    found[key] = found.get(key, 0) + count
        return found

    # Texts that are kept

    cdef Kind kind(self, int api, int version):
        if not (0 <= api < MOST_APIS and 0 <= version < MOST_APIS):
            api = version = MOST_APIS
        key = api << 16 | version
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = Kind(api, version)
        return <Kind>found

    cdef bytes text_of(self, value):
        found = self.texts.get(value)
        if found is None:
            if len(self.texts) >= MOST_TEXTS:
                self.texts.clear()
            found = ordinary.encoded(value)
            if value is None or len(value) <= LONGEST_TEXT:
                self.texts[value] = found
        return <bytes>found

    cdef tuple client_of(self, bytes raw):
        """A client id on the wire (None: null) -> (as a string, as JSON). Raises UnicodeDecodeError."""
        found = self.clients.get(raw)
        if found is None:
            if len(self.clients) >= MOST_TEXTS:
                self.clients.clear()
            client_id = None if raw is None else raw.decode()
            found = client_id, ordinary.encoded(client_id)
            if raw is None or PyBytes_GET_SIZE(raw) <= LONGEST_TEXT:
                self.clients[raw] = found
        return <tuple>found

    cdef tuple connection_text(self, conn, peer):
        """By identity, because to hash a peer costs more."""
        key = id(conn), id(peer)
        found = self.connections.get(key)
        if found is None:
            if len(self.connections) >= MOST_TEXTS:
                self.connections.clear()
            found = self.connections[key] = conn, peer, ordinary.connection_text(conn, peer)
        return <tuple>(<tuple>found)[2]

    # The line

    cdef bytes write(
        self, Kind kind, tuple connection, bytes client, int32_t correlation_id, bytes raw, const Place* request,
        const Place* response, bytes file, bytes outcome, fetched,
    ):
        cdef Out* out = &self.line
        reset(&self.asked)
        reset(&self.answered)
        out.size = 0
        self.put_time(request.ts)
        put(out, kind.before)
        put_number(out, correlation_id)
        put(out, b',"clientId":')
        put(out, client)
        put(out, kind.behind)
        if not self.put_body(kind.request, request, &self.asked, False):
            return None
        put(out, b',"response":')
        if response == NULL:
            put(out, b"null")
        elif kind.api == API_VERSIONS and is_unsupported(response):
            return None
        elif not self.put_body(kind.response, response, &self.answered, True):
            return None
        self.put_sizes(connection, request, response, file, outcome)
        names = None if fetched is None else [found.topic or self.name_of(found.topic_id) for found in fetched]
        self.put_topics(names)
        put(out, b',"groupId":')
        self.put_group(kind, raw, request.body_at)
        self.put_errors()
        put(out, b',"tags":[],"faults":[]')
        if fetched is not None:
            put(out, b',"fetched":')
            put(out, ordinary.fetched_text(fetched, names))
        put(out, b"}}\n")
        made = PyBytes_FromStringAndSize(out.text, out.size)
        if out.room > KEPT_ROOM:
            drop(out)
        if self.text.room > KEPT_ROOM:
            drop(&self.text)
        return made

    cdef int put_time(self, int64_t ts) except -1:
        cdef int64_t rest = ts % SECOND
        cdef char[16] digits
        cdef int index
        put(&self.line, b'{"timestamp":"')
        if ts < 0:
            return put(&self.line, timestamp(ts).encode())
        if ts // SECOND != self.second:
            self.second = ts // SECOND
            text = timestamp(ts)
            self.second_text = text[: len(text) - 11].encode()
        put(&self.line, self.second_text)
        for index in range(9, 0, -1):
            digits[index] = <char>(48 + rest % 10)
            rest //= 10
        digits[0], digits[10] = c".", c"Z"
        return put_bytes(&self.line, digits, 11)

    cdef bint put_body(self, Program program, const Place* place, Sink* sink, bint is_response) except -1:
        cdef Py_ssize_t size = place.size - place.body_at
        self.text.size = 0
        if size < 0 or program.tell(place.raw + place.body_at, size, self.body, &self.text, sink) < 0:
            return False
        if sink.records.count:
            return self.put_with_records(place.size, sink, is_response)
        if self.body:
            put_bytes(&self.line, self.text.text, self.text.size)
        else:
            put(&self.line, b"null")
        return True

    cdef bint put_with_records(self, Py_ssize_t frame_size, Sink* sink, bint is_response) except -1:
        """The body's text with what is to be said of each records field in its place."""
        cdef Py_ssize_t index, before = 0
        cdef const FoundRecords* place
        cdef bytes shown
        budget = ordinary.records_budget(self.options, frame_size, is_response) if self.records else None
        for index in range(sink.records.count):
            place = &(<const FoundRecords*>sink.records.items)[index]
            data = PyBytes_FromStringAndSize(<const char*>place.at, place.size)
            if self.records:
                shown = ordinary.records_text(data, self.topic_of(&place.near), is_response, budget)
            else:
                shown = summary_json(data, is_response, False)
            if shown is None:
                return False
            if self.body:
                put_bytes(&self.line, self.text.text + before, place.splice - before)
                put(&self.line, shown)
                before = place.splice
        if self.body:
            put_bytes(&self.line, self.text.text + before, self.text.size - before)
        else:
            put(&self.line, b"null")
        return True

    cdef int put_sizes(
        self, tuple connection, const Place* request, const Place* response, bytes file, bytes outcome
    ) except -1:
        cdef Out* out = &self.line
        put(out, connection[0])
        if response == NULL:
            put(out, b"null")
        else:
            put_milliseconds(out, response.end - request.ts)
        put(out, b',"throttleTimeMs":')
        put_number(out, self.answered.throttle)
        put(out, connection[1])
        put(out, outcome)
        put(out, connection[2])
        put_number(out, request.wire_size)
        put(out, b',"responseBytes":')
        put_maybe(out, response != NULL, 0 if response == NULL else response.wire_size)
        put(out, b',"file":')
        put(out, file)
        put(out, b',"requestPacket":')
        put_maybe(out, request.packet != 0, request.packet)
        put(out, b',"responsePacket":')
        return put_maybe(out, response != NULL and response.packet, 0 if response == NULL else response.packet)

    cdef int put_topics(self, fetched) except -1:
        cdef const Sink* asked = &self.asked
        cdef const Sink* answered = &self.answered
        put(&self.line, b',"topics":')
        if asked.topics.count + answered.topics.count <= FEW_TOPICS and fetched is None:
            if not (asked.topic_ids.count or answered.topic_ids.count):
                return put_few_topics(&self.line, asked, answered)
        names = list(fetched or ())
        self.add_topics(asked, names)
        self.add_topics(answered, names)
        return put(&self.line, ordinary.encoded(list(dict.fromkeys(names))))

    cdef int add_topics(self, const Sink* sink, list names) except -1:
        cdef Py_ssize_t index
        for index in range(sink.topics.count):
            names.append(string((<const Text*>sink.topics.items)[index]))
        for index in range(sink.topic_ids.count):
            names.append(self.name_of(topic_id_text((<const Byte**>sink.topic_ids.items)[index])))
        return 0

    cdef name_of(self, topic_id):
        """As facts.topic_name. Declines what may be told otherwise by the time when the line is put out."""
        told = self.names.get(topic_id)
        if told is not None and told[0] <= self.told_by:
            return told[1]
        if self.early:
            raise _Declined
        return topic_id

    cdef topic_of(self, const Nearest* near):
        if near.topic.at != NULL:
            return string(near.topic)
        return None if near.topic_id == NULL else self.name_of(topic_id_text(near.topic_id))

    cdef int put_group(self, Kind kind, bytes raw, Py_ssize_t body_at) except -1:
        if kind.api == FIND_COORDINATOR:
            group = ordinary.sought_group(kind.api, kind.request, raw, body_at)
            if group is not None:
                return put(&self.line, ordinary.encoded(group))
        elif self.asked.group.at != NULL:
            return put_string(&self.line, self.asked.group)
        if self.answered.group.at != NULL:
            return put_string(&self.line, self.answered.group)
        return put(&self.line, b"null")

    cdef int put_errors(self) except -1:
        cdef const FoundError* error
        cdef Py_ssize_t index
        put(&self.line, b',"errors":[')
        for index in range(self.answered.errors.count):
            error = &(<const FoundError*>self.answered.errors.items)[index]
            if index:
                put(&self.line, b",")
            put(&self.line, ordinary.error_text(error.code))
            if error.near.topic.at != NULL:
                put_string(&self.line, error.near.topic)
            else:
                put(&self.line, ordinary.encoded(self.topic_of(&error.near)))
            put(&self.line, b',"partition":')
            put_maybe(&self.line, error.near.has_partition, error.near.partition)
            put(&self.line, b"}")
        return put(&self.line, b"]")


cdef bint place_of(frame, Place* place) except -1:
    """False for a frame that is not whole, or no Kafka 0.8+."""
    cdef bytes raw = frame.raw
    if frame.protocol is not KAFKA or frame.lost or frame.body_at < 0:
        return False
    place.raw, place.size = <const Byte*>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)
    place.body_at, place.ts, place.end = frame.body_at, frame.ts, frame.end
    place.packet, place.wire_size = frame.packet, frame.size
    return True


cdef bint is_unsupported(const Place* response) noexcept:
    """UNSUPPORTED_VERSION, which a broker says in version 0 whatever was asked (KIP-511)."""
    cdef const Byte* at = response.raw + response.body_at
    return response.size >= response.body_at + 2 and at[0] == 0 and at[1] == 35


cdef int reset(Sink* sink) except -1:
    cdef bint decoded_records = sink.decoded_records
    if not reset_sink(sink):
        free_sink(sink)
        memset(sink, 0, sizeof(Sink))
        sink.decoded_records = decoded_records
    return 0


cdef int drop(Out* out) except -1:
    free(out.text)
    memset(out, 0, sizeof(Out))
    return 0


cdef inline int put(Out* out, bytes text) except -1:
    return put_bytes(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline int put_bytes(Out* out, const char* text, Py_ssize_t size) except -1:
    if append(out, text, size) < 0:
        raise MemoryError
    return 0


cdef inline int put_number(Out* out, int64_t value) except -1:
    if append_number(out, value) < 0:
        raise MemoryError
    return 0


cdef int put_maybe(Out* out, bint there, int64_t value) except -1:
    return put_number(out, value) if there else put(out, b"null")


cdef int put_string(Out* out, Text text) except -1:
    if append_string(out, text.at, text.size) < 0:
        raise _Declined
    return 0


cdef int put_few_topics(Out* out, const Sink* asked, const Sink* answered) except -1:
    cdef Text[FEW_TOPICS] shown
    cdef int count = 0
    put(out, b"[")
    put_new_topics(out, asked, shown, &count)
    put_new_topics(out, answered, shown, &count)
    return put(out, b"]")


cdef int put_new_topics(Out* out, const Sink* sink, Text* shown, int* count) except -1:
    cdef Py_ssize_t index
    cdef int other
    cdef Text topic
    for index in range(sink.topics.count):
        topic = (<const Text*>sink.topics.items)[index]
        for other in range(count[0]):
            if shown[other].size == topic.size and memcmp(shown[other].at, topic.at, topic.size) == 0:
                break
        else:
            if count[0]:
                put(out, b",")
            put_string(out, topic)
            shown[count[0]] = topic
            count[0] += 1
    return 0


cdef int put_milliseconds(Out* out, int64_t ns) except -1:
    """As repr of a float has it: up to 15 digits are told apart by floats, so they are all there is to write."""
    cdef char[8] digits
    cdef int index, size = 1
    cdef int64_t rest = ns % 1_000_000
    if not 100 <= ns < 1_000_000_000_000_000:
        # Python and JSON encoders write exponents in different ways.
        return put(out, ordinary.encoded(ns / 1e6))
    put_number(out, ns // 1_000_000)
    digits[0] = c"."
    for index in range(6, 0, -1):
        digits[index] = <char>(48 + rest % 10)
        if size == 1 and digits[index] != c"0":
            size = index + 1
        rest //= 10
    return put_bytes(out, digits, max(size, 2))


cdef string(Text text):
    return text.at[:text.size].decode("utf-8", "surrogateescape")
