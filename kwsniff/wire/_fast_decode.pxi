# Bytes -> bodies, as decoder.py. A function that returns NULL has met what that is to explain.

cdef extern from "Python.h":
    PyObject* PyDict_New()
    PyObject* PyDict_Copy(PyObject*)
    int PyDict_SetItem(PyObject*, PyObject*, PyObject*)
    PyObject* PyList_New(Py_ssize_t)
    void PyList_SET_ITEM(PyObject*, Py_ssize_t, PyObject*)
    PyObject* PyLong_FromLongLong(long long)
    PyObject* PyLong_FromUnsignedLong(unsigned long)
    PyObject* PyFloat_FromDouble(double)
    PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    PyObject* PyUnicode_New(Py_ssize_t, uint32_t)
    Byte* PyUnicode_1BYTE_DATA(PyObject*)
    PyObject* PyBytes_FromStringAndSize(const char*, Py_ssize_t)
    PyObject* PyObject_CallNoArgs(PyObject*)
    void* PyMem_Calloc(size_t, size_t)
    void PyMem_Free(void*)
    int PyGC_Disable()
    int PyGC_Enable()

cdef const char* URL_SAFE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
cdef Byte[16] ZERO_ID
memset(ZERO_ID, 0, 16)
cdef enum:
    MAX_NAME = 64  # bytes
    LEAST_SMALL = -1
    MOST_SMALL = 256
cdef list _small_list = list(range(LEAST_SMALL, MOST_SMALL + 1))
cdef PyObject* _small[MOST_SMALL - LEAST_SMALL + 1]
for _place in range(MOST_SMALL - LEAST_SMALL + 1):
    _small[_place] = <PyObject*>_small_list[_place]
cdef object _zero_uuid = ZERO_UUID
cdef object _tags_key = _interned("_tags")


cdef int raise_current() except -1:
    """Raises the exception that is set (MemoryError)."""
    return -1


cdef union Trace:
    PyObject* body  # of a shape: the last one made whose values may be taken; NULL: none
    const Byte* at  # of a field: where the bytes of its value in that body are


cdef made_body(const Shape* shape, Cursor* c):
    cdef Trace* traces = <Trace*>PyMem_Calloc(shape.places, sizeof(Trace))
    if traces == NULL:
        raise MemoryError
    cdef PyObject* body = decode_struct(shape, c, traces)
    PyMem_Free(traces)
    if body == NULL:
        if PyErr_Occurred() != NULL:
            raise_current()
        return None
    return _owned(body), c.at - c.start


cdef PyObject* decode_struct(const Shape* shape, Cursor* c, Trace* traces) noexcept:
    """Neighbours are much alike, and setting a field costs more than copying it: a body begins as a copy of
    the last one of its shape, and a number or string whose bytes are the same as there stays. All else is
    made anew: bodies have in common only what cannot be changed."""
    cdef Trace* last = &traces[shape.place]
    cdef const Op* op = shape.ops
    cdef PyObject* value
    cdef int index, failed
    cdef bint alike = last.body != NULL
    cdef PyObject* body = PyDict_Copy(last.body if alike else shape.template)
    if body == NULL:
        return NULL
    for index in range(1, shape.count + 1):
        if not stays(op, c, &last[index], alike):
            value = decode_field(op, c, traces)
            failed = value == NULL or PyDict_SetItem(body, op.key, value)
            Py_XDECREF(value)
            if failed:
                Py_DECREF(body)
                return NULL
        op += 1
    last.body = body
    if not shape.flexible:
        return body
    if c.at < c.end and c.at[0] == 0:
        c.at += 1
        return body
    last.body = NULL  # it may get what the next has not
    if decode_tags(shape, c, body, traces) < 0:
        Py_DECREF(body)
        return NULL
    return body


cdef inline bint stays(const Op* op, Cursor* c, Trace* trace, bint alike) noexcept nogil:
    """Whether the copy has the field's value already; its bytes are passed then. Else they are remembered."""
    if op.way == SCALAR:
        if alike and c.end - c.at >= op.size and same_bytes(c.at, trace.at, op.size):
            c.at += op.size
            return True
    elif op.way == TEXT:
        if alike and skip_same(op, c, trace.at):
            return True
    elif op.way == ABSENT:
        return op.fresh == SHARED
    trace.at = c.at
    return False


cdef inline PyObject* decode_field(const Op* op, Cursor* c, Trace* traces) noexcept:
    if op.way == SCALAR:
        if c.end - c.at < op.size:
            return NULL
        c.at += op.size
        return decode_fixed(op.kind, c.at - op.size)
    if op.way == MANY:
        return decode_array(op, c, traces)
    return fresh_default(op) if op.way == ABSENT else decode_one(op, c, traces)


cdef inline bint same_bytes(const Byte* one, const Byte* other, int size) noexcept nogil:
    """A comparison of fixed size costs less than a call."""
    if size == 4:
        return memcmp(one, other, 4) == 0
    if size == 8:
        return memcmp(one, other, 8) == 0
    if size == 2:
        return memcmp(one, other, 2) == 0
    return one[0] == other[0] if size == 1 else memcmp(one, other, size) == 0


cdef inline bint skip_same(const Op* op, Cursor* c, const Byte* other) noexcept nogil:
    """Whether the string is that at `other`, which is before it; then it is passed."""
    cdef const Byte* at = c.at
    cdef int64_t size
    if read_blob_size(c, op, &size) == 0:
        c.at += max(0, size)
        if memcmp(at, other, c.at - at) == 0:
            return True
    c.at = at
    return False


cdef PyObject* fresh_default(const Op* op) noexcept:
    if op.fresh == NEW_LIST:
        return PyList_New(0)
    return PyDict_Copy(op.default) if op.fresh == COPIED else PyObject_CallNoArgs(op.make)


cdef PyObject* decode_one(const Op* op, Cursor* c, Trace* traces) noexcept:
    cdef int64_t size
    cdef int mark
    cdef const Byte* at = c.at
    cdef PyObject* value
    if op.kind == STRING or op.kind == BYTES:
        if read_blob_size(c, op, &size) < 0:
            return NULL
        if size < 0:
            Py_INCREF(Py_None)
            return Py_None
        at = c.at
        c.at += size
        if op.kind == STRING:
            return decode_text(at, size)
        return PyBytes_FromStringAndSize(<const char*>at, size)
    if op.kind == STRUCT:
        if op.nullable and not op.array:
            mark = read_null_mark(c, op)
            if mark < 0:
                return NULL
            if mark:
                Py_INCREF(Py_None)
                return Py_None
        return decode_struct(op.below, c, traces)
    if c.end - at < op.size:
        return NULL
    c.at = at + op.size
    return decode_fixed(op.kind, at)


cdef inline PyObject* decode_text(const Byte* at, Py_ssize_t size) noexcept:
    """A short one that is ASCII is copied. Python keeps those of up to one character itself."""
    cdef PyObject* text
    cdef Py_ssize_t index
    cdef Byte bits = 0
    if not 2 <= size <= MAX_NAME:
        return PyUnicode_DecodeUTF8(<const char*>at, size, "surrogateescape")
    for index in range(size):
        bits |= at[index]
    if bits & 0x80:
        return PyUnicode_DecodeUTF8(<const char*>at, size, "surrogateescape")
    text = PyUnicode_New(size, 127)
    if text != NULL:
        memcpy(PyUnicode_1BYTE_DATA(text), at, size)
    return text


cdef inline PyObject* small_or_long(int64_t value) noexcept:
    cdef PyObject* found
    if LEAST_SMALL <= value <= MOST_SMALL:
        found = <PyObject*>_small[value - LEAST_SMALL]
        Py_INCREF(found)
        return found
    return PyLong_FromLongLong(value)


cdef inline PyObject* decode_fixed(Byte kind, const Byte* at) noexcept:
    cdef PyObject* value
    if kind == INT32:
        return small_or_long(<int32_t>load32(at))
    elif kind == INT16:
        return small_or_long(<int16_t>load16(at))
    elif kind == INT64:
        return small_or_long(<int64_t>load64(at))
    elif kind == BOOL:
        value = Py_True if at[0] else Py_False
        Py_INCREF(value)
        return value
    elif kind == INT8:
        return small_or_long(<int8_t>at[0])
    elif kind == UUID:
        return decode_uuid(at)
    elif kind == UINT16:
        return small_or_long(load16(at))
    elif kind == UINT32:
        return PyLong_FromUnsignedLong(load32(at))
    else:
        return PyFloat_FromDouble(load_double(at))


cdef PyObject* decode_uuid(const Byte* at) noexcept:
    cdef PyObject* text
    if memcmp(at, ZERO_ID, 16) == 0:
        text = <PyObject*>_zero_uuid
        Py_INCREF(text)
        return text
    text = PyUnicode_New(22, 127)
    if text != NULL:
        write_uuid(at, PyUnicode_1BYTE_DATA(text))
    return text


cdef inline void write_uuid(const Byte* at, Byte* text) noexcept nogil:
    cdef int group
    cdef uint32_t bits
    for group in range(5):
        bits = <uint32_t>at[0] << 16 | <uint32_t>at[1] << 8 | at[2]
        text[0] = URL_SAFE[bits >> 18]
        text[1] = URL_SAFE[bits >> 12 & 63]
        text[2] = URL_SAFE[bits >> 6 & 63]
        text[3] = URL_SAFE[bits & 63]
        at += 3
        text += 4
    text[0] = URL_SAFE[at[0] >> 2]
    text[1] = URL_SAFE[(at[0] & 3) << 4]


cdef PyObject* decode_array(const Op* op, Cursor* c, Trace* traces) noexcept:
    cdef int64_t count, index
    cdef PyObject* item
    cdef const Byte* at
    if read_count(c, op, &count) < 0:
        return NULL
    if count < 0:
        Py_INCREF(Py_None)
        return Py_None
    cdef PyObject* items = PyList_New(count)
    if items == NULL:
        return NULL
    if op.size:
        at = c.at
        c.at += count * op.size
        for index in range(count):
            item = small_or_long(<int32_t>load32(at)) if op.kind == INT32 else decode_fixed(op.kind, at)
            if item == NULL:
                Py_DECREF(items)
                return NULL
            PyList_SET_ITEM(items, index, item)
            at += op.size
        return items
    for index in range(count):
        item = decode_struct(op.below, c, traces) if op.kind == STRUCT else decode_one(op, c, traces)
        if item == NULL:
            Py_DECREF(items)
            return NULL
        PyList_SET_ITEM(items, index, item)
    return items


cdef int decode_tags(const Shape* shape, Cursor* c, PyObject* body, Trace* traces) noexcept:
    """The tag section. Unknown tags are kept under `_tags` (KIP-482)."""
    cdef uint32_t count, tag, size
    cdef int64_t last = -1
    cdef const Op* op
    cdef const Byte* end
    cdef PyObject* value
    cdef PyObject* unknown = NULL
    cdef int failed
    if read_uvarint(c, &count) < 0:
        return -1
    while count > 0:
        count -= 1
        if read_tag(c, &last, &tag, &size) < 0:
            return -1
        end = c.at + size
        op = find_tag(shape, tag)
        if op == NULL:
            c.elements -= 1
            if c.elements < 0:
                return -1
            if unknown == NULL:
                unknown = PyDict_New()
                if unknown == NULL:
                    return -1
                failed = PyDict_SetItem(body, <PyObject*>_tags_key, unknown)
                Py_DECREF(unknown)  # the body holds it
                if failed:
                    return -1
            if _set_unknown(unknown, tag, c.at, size) < 0:
                return -1
            c.at = end
            continue
        value = decode_array(op, c, traces) if op.array else decode_one(op, c, traces)
        if value == NULL:
            return -1
        failed = PyDict_SetItem(body, op.key, value)
        Py_DECREF(value)
        if failed or c.at != end:
            return -1
    return 0


cdef int _set_unknown(PyObject* unknown, uint32_t tag, const Byte* at, uint32_t size) noexcept:
    cdef PyObject* key = PyLong_FromUnsignedLong(tag)
    cdef PyObject* raw = PyBytes_FromStringAndSize(<const char*>at, size)
    cdef int failed = -1
    if key != NULL and raw != NULL:
        failed = PyDict_SetItem(unknown, key, raw)
    Py_XDECREF(key)
    Py_XDECREF(raw)
    return failed
