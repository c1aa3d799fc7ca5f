# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What the compiled scanner works on and gives out: the state of streams, and runs of their chunks.

The states are those of kwsniff.capture.state, as machine integers. A run is what `_scan` found to be in order, as
places in a window; it becomes chunks, or one `bytes`, or (see `_run.pxd`) is read in place. Decides nothing.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from kwsniff.model import Chunk


cdef class ConnectionState:
    """See kwsniff.capture.state."""


cdef class StreamState:
    """See kwsniff.capture.state."""

    def __cinit__(self):
        self._acked = -1

    @property
    def acked(self):
        return None if self._acked < 0 else self._acked

    @acked.setter
    def acked(self, value):
        self._acked = -1 if value is None else value


@cython.no_gc
@cython.freelist(256)
cdef class Run:
    """Chunks of one direction, in order, with nothing of another one between them; none tells more than its data.

    Until `data` is asked for, a run holds the whole window that it came in. It is to be used and dropped: the garbage
    collector does not see it, so it must not be kept where its slot leads to.
    """

    def __dealloc__(self):
        if self.spans != &self.one:
            PyMem_Free(self.spans)

    cdef const char* base(self) noexcept:
        return PyBytes_AS_STRING(self.block)

    cdef Py_ssize_t index(self, Py_ssize_t offset) noexcept:
        """The span with the run's byte at `offset`."""
        cdef Py_ssize_t low = 0, high = self.count - 1, middle
        while low < high:
            middle = (low + high) >> 1
            if self.spans[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        return low

    def __len__(self):
        """Chunks."""
        return self.count

    @property
    def src(self):
        return self.stream.src

    @property
    def dst(self):
        return self.stream.dst

    @property
    def session(self):
        return self.stream.connection.session

    @property
    def slot(self):
        """What the reader of chunks has set for this session: None at first, and when the session is done."""
        return self.stream.connection.slot

    @slot.setter
    def slot(self, value):
        if not self.stream.connection.done:
            self.stream.connection.slot = value

    @property
    def ts(self):
        return self.spans[0].ts

    @property
    def packet(self):
        return self.spans[0].packet

    @property
    def latest(self):
        """The highest time: captures do not always stand in order of time."""
        cdef Py_ssize_t n
        cdef int64_t found = self.spans[0].ts
        for n in range(1, self.count):
            found = max(found, self.spans[n].ts)
        return found

    @property
    def last_ts(self):
        return self.spans[self.count - 1].ts

    @property
    def last_packet(self):
        return self.spans[self.count - 1].packet

    def mark(self, Py_ssize_t offset):
        """(ts, packet) of the run's byte at `offset`."""
        if not 0 <= offset < self.size:
            raise IndexError(offset)
        cdef Py_ssize_t n = self.index(offset)
        return self.spans[n].ts, self.spans[n].packet

    cpdef bytes data(self):
        """All bytes of the run; the same object each time."""
        cdef Py_ssize_t n, begin = 0
        cdef bytes joined
        cdef char* to
        if self.joined:
            return self.block
        joined = PyBytes_FromStringAndSize(NULL, self.size)
        to = PyBytes_AS_STRING(joined)
        for n in range(self.count):
            memcpy(to + begin, self.base() + self.spans[n].start, self.spans[n].end - begin)
            self.spans[n].start = begin
            begin = self.spans[n].end
        self.block = joined
        self.joined = True
        return joined

    def chunks(self):
        """The run as chunks: each with the bytes, the time and the number of its packet."""
        cdef list found = []
        cdef StreamState stream = self.stream
        cdef object session = stream.connection.session
        cdef Py_ssize_t n, begin = 0
        cdef Span* span
        for n in range(self.count):
            span = self.spans + n
            data = PyBytes_FromStringAndSize(self.base() + span.start, span.end - begin)
            begin = span.end
            found.append(Chunk(span.ts, stream.src, stream.dst, data, 0, False, span.packet, False, session))
        return found
