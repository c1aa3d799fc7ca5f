# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, nonecheck=False, embedsignature=True
"""The codec compiled: a message at a version is a Program, which runs over bytes in C.

In: a Layout (_program.py) once, then bytes or bodies. Out: bodies, bytes, JSON text, facts: the same as
decoder.py, encoder.py, output/present.py with msgspec, and walk.py give. None instead, for whatever is wrong
with bytes or body and for what only those can do: whoever calls then asks them, and they say where and why.
Nothing recurses but the schema; counts and sizes are checked against the bytes left before use.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from kwsniff.wire import primitives
from kwsniff.wire.schema import ZERO_UUID

include "_fast_layout.pxi"
include "_fast_cursor.pxi"
include "_fast_decode.pxi"
include "_fast_encode.pxi"
include "_fast_facts.pxi"
include "_fast_skip.pxi"
include "_fast_text.pxi"
include "_fast_json.pxi"


cdef class Program:
    """A message at a version. `layout`: of _program.layout; `name` is for its repr alone."""

    def __cinit__(self, layout, str name=""):
        self.name = name
        self.kept = []
        self.shapes = []
        self.shape = build_shape(layout, self.kept, self.shapes)

    def __dealloc__(self):
        if self.shapes is not None:
            for address in self.shapes:
                free_shape(<Shape*><size_t>address)

    def __repr__(self):
        return f"<Program {self.name}>"

    def decode(self, data, Py_ssize_t at=0):
        """(the body that begins at `at`, where it ends), or None."""
        cdef Cursor cursor
        if not set_cursor(&cursor, data, at, -1):
            return None
        cdef bint collecting = PyGC_Disable()  # a collection could not free anything of what is being made
        try:
            return made_body(self.shape, &cursor)
        finally:
            if collecting:
                PyGC_Enable()

    def encode(self, body):
        """The bytes of a body, or None."""
        cdef Out out
        memset(&out, 0, sizeof(out))
        try:
            if encode_struct(self.shape, <PyObject*>body, &out) < 0:
                PyErr_Clear()
                return None
            return out.text[:out.size]
        finally:
            free(out.text)

    def body_json(self, data, Py_ssize_t at=0, Py_ssize_t end=-1, bint records=False):
        """(JSON text, facts) of the body that fills `data` from `at` to `end` (-1: its end), or None.

        The text is what output.jsonl makes of the body, but for the values that stand for records fields,
        which are left out: each belongs at its `splice` (bytes into the text, in rising order); the text
        has what goes before, `"recordsSizeInBytes":n,"recordsSummary":`, with records=True `"records":`.
        facts: see `body_facts`.
        """
        cdef Cursor cursor
        if not set_cursor(&cursor, data, at, end):
            return None
        cdef Work* work = borrow_work()
        if work == NULL:
            raise MemoryError
        try:
            work.sink.decoded_records = records
            if write_struct(self.shape, &cursor, &work.out, &work.sink) < 0 or cursor.at != cursor.end:
                return None
            return work.out.text[:work.out.size], made_facts(&work.sink, cursor.start)
        finally:
            give_back(work)

    cdef int tell(self, const Byte* at, Py_ssize_t size, bint text, Out* out, Sink* sink) noexcept nogil:
        """The facts and, if wanted, the JSON text of the body that these bytes are: `body_json`. -1: None."""
        cdef Cursor cursor
        cursor.start = cursor.at = at
        cursor.end = at + size
        cursor.elements = MAX_ELEMENTS
        if (write_struct(self.shape, &cursor, out, sink) if text else skip_struct(self.shape, &cursor, sink)) < 0:
            return -1
        return 0 if cursor.at == cursor.end else -1

    def body_facts(self, data, Py_ssize_t at=0, Py_ssize_t end=-1):
        """What walk.py finds in the body that fills `data` from `at` to `end`, or None.

        (topics, topic ids, first group or None, errors, throttleTimeMs, records, learned):
        errors: (code, topic or None, topic id or None, partition or None); records: (splice, offset in
        `data`, size, key, topic or None, topic id or None) of each field that is not null; learned: (topic id,
        topic) of structs that tell both. Without errors, topics and so on they are empty tuples.
        """
        cdef Cursor cursor
        if not set_cursor(&cursor, data, at, end):
            return None
        cdef Work* work = borrow_work()
        if work == NULL:
            raise MemoryError
        try:
            if skip_struct(self.shape, &cursor, &work.sink) < 0 or cursor.at != cursor.end:
                return None
            return made_facts(&work.sink, cursor.start)
        finally:
            give_back(work)


cdef bint set_cursor(Cursor* cursor, data, Py_ssize_t at, Py_ssize_t end) except -1:
    if not PyBytes_Check(data):
        return False
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    if end < 0:
        end = size
    if not 0 <= at <= end <= size:
        return False
    cursor.start = <const uint8_t*>PyBytes_AS_STRING(data)
    cursor.at = cursor.start + at
    cursor.end = cursor.start + end
    cursor.elements = MAX_ELEMENTS
    return True
