"""For other compiled modules: bodies to JSON text and facts, without Python objects in between.

Text is appended to an Out, which grows and is freed by `free`. A Sink collects what `body_facts` tells; what it
points to lies in the body's own bytes.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

ctypedef uint8_t Byte

cdef struct Out:
    char* text
    Py_ssize_t size
    Py_ssize_t room

cdef struct Text:
    const Byte* at  # NULL: none
    Py_ssize_t size

cdef struct Nearest:  # of a struct, or of the nearest around what was found in it
    Text topic
    const Byte* topic_id  # NULL: none, or zero
    int32_t partition
    bint has_partition

cdef struct FoundError:
    int16_t code
    Nearest near

cdef struct FoundRecords:
    Py_ssize_t splice
    const Byte* at
    Py_ssize_t size
    PyObject* key
    Nearest near

cdef struct Some:  # a growing array
    void* items
    Py_ssize_t count
    Py_ssize_t room

cdef struct Sink:
    Some topics  # of Text, distinct if few
    Some topic_ids  # of const Byte*
    Some errors
    Some records
    Some learned
    Text group
    int32_t throttle
    bint decoded_records  # whether JSON is to have the records, or their summary

cdef struct Shape

cdef int append(Out* out, const char* text, Py_ssize_t size) noexcept nogil
cdef int append_number(Out* out, int64_t value) noexcept nogil
cdef int append_string(Out* out, const Byte* at, Py_ssize_t size) noexcept nogil
cdef bint reset_sink(Sink* sink) noexcept
cdef void free_sink(Sink* sink) noexcept
cdef topic_id_text(const Byte* at)

cdef class Program:
    cdef Shape* shape
    cdef list kept
    cdef list shapes
    cdef readonly str name

    cdef int tell(self, const Byte* at, Py_ssize_t size, bint text, Out* out, Sink* sink) noexcept nogil
