"""For other compiled modules: a Run's bytes in place.

The bytes of span n are at `base() + spans[n].start`; they are the run's from where span n - 1 ends to `spans[n].end`.
"""

from libc.stdint cimport int64_t


cdef struct Span:
    int64_t ts
    int64_t packet
    Py_ssize_t start   # in the run's block
    Py_ssize_t end     # bytes of the run up to here, this span included


cdef class ConnectionState:
    cdef public int64_t session, tick, last
    cdef public bint done
    cdef public object slot


cdef class StreamState:
    cdef public object src, dst
    cdef public int64_t next
    cdef int64_t _acked
    cdef public int strays
    cdef public bint plain
    cdef public StreamState peer
    cdef public ConnectionState connection
    cdef bytes key


cdef class Run:
    cdef readonly StreamState stream
    cdef bytes block
    cdef Span one
    cdef Span* spans
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t count
    cdef bint joined

    cdef const char* base(self) noexcept
    cdef Py_ssize_t index(self, Py_ssize_t offset) noexcept
    cpdef bytes data(self)
