# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The window in which events wait for their turn, compiled: `reader.Window` is its specification."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, realloc

from kwsniff.output._line cimport Line


cdef struct Entry:
    int64_t when
    int64_t number
    int64_t weight
    PyObject* event


cdef class Window:
    """place(event) -> (when it was, the capture time at which it became known, the bytes that it holds)."""

    cdef Entry* heap
    cdef Py_ssize_t count, room
    cdef int64_t newest, held, number, most_time, most_events, most_bytes
    cdef object place

    def __cinit__(self, place, int64_t most_time, int64_t most_events, int64_t most_bytes):
        self.place = place
        self.most_time, self.most_events, self.most_bytes = most_time, most_events, most_bytes

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.count):
            Py_DECREF(<object>self.heap[at].event)
        free(self.heap)

    def feed(self, list events):
        """The events whose turn it is now that these have come, in order."""
        cdef Line line
        cdef list ready = []
        for event in events:
            if type(event) is Line:
                line = <Line>event
                self.push(line.ts, line.known, line.weight, event)
            else:
                when, known, weight = self.place(event)
                self.push(bounded(when), bounded(known), weight, event)
        while self.count and (
            self.heap[0].when <= self.newest - self.most_time
            or self.count > self.most_events
            or self.held > self.most_bytes
        ):
            ready.append(self.pop())
        return ready

    def rest(self):
        """All that still waits, in order."""
        return [self.pop() for _ in range(self.count)]

    cdef int push(self, int64_t when, int64_t known, int64_t weight, event) except -1:
        cdef Py_ssize_t at = self.count, parent
        cdef Entry* heap
        if self.count == self.room:
            heap = <Entry*>realloc(self.heap, (2 * self.room + 64) * sizeof(Entry))
            if heap == NULL:
                raise MemoryError
            self.heap, self.room = heap, 2 * self.room + 64
        self.number += 1
        self.count += 1
        while at:
            parent = (at - 1) >> 1
            if self.heap[parent].when <= when:
                break
            self.heap[at] = self.heap[parent]
            at = parent
        Py_INCREF(event)
        self.heap[at].when, self.heap[at].number = when, self.number
        self.heap[at].weight, self.heap[at].event = weight, <PyObject*>event
        self.held += weight
        self.newest = max(self.newest, known)
        return 0

    cdef object pop(self):
        cdef Entry* heap = self.heap
        cdef PyObject* first = heap[0].event
        cdef Entry last
        cdef Py_ssize_t at = 0, child
        self.held -= heap[0].weight
        self.count -= 1
        last = heap[self.count]
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and is_before(&heap[child + 1], &heap[child]):
                child += 1
            if not is_before(&heap[child], &last):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        event = <object>first
        Py_DECREF(event)
        return event


cdef inline bint is_before(const Entry* one, const Entry* other) noexcept nogil:
    return one.when < other.when or (one.when == other.when and one.number < other.number)


cdef int64_t bounded(when):
    """The times of captures are any number; those that are no time of this world need no order."""
    return max(-INT64_MAX, min(when, INT64_MAX))
