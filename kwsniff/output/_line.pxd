"""For other compiled modules: lines of pairs whose bytes are at hand."""

from libc.stdint cimport int32_t, int64_t

from kwsniff.wire._fast cimport Byte, Nearest, Out, Program, Sink

cdef struct Place:  # of a frame: as model.Frame
    const Byte* raw
    Py_ssize_t size  # of raw
    Py_ssize_t body_at
    int64_t ts
    int64_t end
    int64_t packet
    int64_t wire_size

cdef class Kind:
    cdef readonly int api, version
    cdef readonly bint known
    cdef bint teaches  # its answers may tell names of topics
    cdef bint request_tags, response_tags
    cdef Program request, response
    cdef bytes before, behind
    cdef int64_t fine, with_errors  # lines put out

cdef class Line:
    cdef readonly int64_t ts, known
    cdef readonly int64_t weight  # bytes of both frames
    cdef readonly bytes text  # None: another process makes it
    cdef readonly int owner
    cdef Py_ssize_t held
    cdef Kind kind
    cdef bint errors

cdef class Lines:
    cdef readonly object options, share
    cdef bint body, records, texts_wanted
    cdef int64_t jobs, mine
    cdef Out line, text
    cdef Sink asked, answered
    cdef dict kinds, connections, texts, clients, counted
    cdef int64_t second
    cdef bytes second_text
    # Of the line that is being made
    cdef object names
    cdef int64_t told_by
    cdef bint early  # before all that could name a topic has been read

    cdef Kind kind(self, int api, int version)
    cdef bytes text_of(self, value)
    cdef tuple client_of(self, bytes raw)
    cdef tuple connection_text(self, conn, peer)
    cdef Line pair(
        self, Kind kind, tuple connection, bytes client, int32_t correlation_id, bytes raw, const Place* request,
        const Place* response, bytes file, names
    )
    cdef int keep(self, Line line, bytes made) except -1
    cdef bytes text_of_pair(
        self, Kind kind, tuple connection, bytes client, int32_t correlation_id, bytes raw, const Place* request,
        const Place* response, bytes file, names
    )
    cdef bytes write(
        self, Kind kind, tuple connection, bytes client, int32_t correlation_id, bytes raw, const Place* request,
        const Place* response, bytes file, bytes outcome, fetched
    )
    cdef int put_time(self, int64_t ts) except -1
    cdef bint put_body(self, Program program, const Place* place, Sink* sink, bint is_response) except -1
    cdef bint put_with_records(self, Py_ssize_t frame_size, Sink* sink, bint is_response) except -1
    cdef int put_sizes(
        self, tuple connection, const Place* request, const Place* response, bytes file, bytes outcome
    ) except -1
    cdef int put_topics(self, fetched) except -1
    cdef int add_topics(self, const Sink* sink, list names) except -1
    cdef name_of(self, topic_id)
    cdef topic_of(self, const Nearest* near)
    cdef int put_group(self, Kind kind, bytes raw, Py_ssize_t body_at) except -1
    cdef int put_errors(self) except -1
