# Bodies -> bytes, as encoder.py. A function that returns -1 has met what that is to judge.

cdef extern from "Python.h":
    int PyDict_CheckExact(PyObject*)
    int PyList_CheckExact(PyObject*)
    int PyTuple_CheckExact(PyObject*)
    int PyLong_CheckExact(PyObject*)
    int PyFloat_CheckExact(PyObject*)
    int PyUnicode_CheckExact(PyObject*)
    int PyBytes_CheckExact(PyObject*)
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*)
    Py_ssize_t PyDict_Size(PyObject*)
    int PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**)
    Py_ssize_t PyList_GET_SIZE(PyObject*)
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject*)
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t)
    long long PyLong_AsLongLongAndOverflow(PyObject*, int*)
    double PyFloat_AS_DOUBLE(PyObject*)
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*)
    char* PyBytes_AS_STRING_ "PyBytes_AS_STRING"(PyObject*)
    Py_ssize_t PyBytes_GET_SIZE_ "PyBytes_GET_SIZE"(PyObject*)

cdef enum:
    MAX_VARINT = 5

cdef int8_t[128] _URL_VALUES  # of characters; -1: none
memset(_URL_VALUES, -1, 128)
for _place in range(64):
    _URL_VALUES[<int>URL_SAFE[_place]] = <int8_t>_place


cdef int grow(Out* out, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t room = out.room * 2 if out.room > 256 else 512
    if room < out.size + more:
        room = out.size + more
    cdef char* text = <char*>realloc(out.text, room)
    if text == NULL:
        return -1
    out.text = text
    out.room = room
    return 0


cdef inline int ensure(Out* out, Py_ssize_t more) noexcept nogil:
    return 0 if out.room - out.size >= more else grow(out, more)


cdef inline int append(Out* out, const char* text, Py_ssize_t size) noexcept nogil:
    if ensure(out, size) < 0:
        return -1
    memcpy(out.text + out.size, text, size)
    out.size += size
    return 0


cdef inline int put_uvarint(Out* out, uint64_t value) noexcept nogil:
    if ensure(out, MAX_VARINT) < 0:
        return -1
    while value > 0x7F:
        out.text[out.size] = <char>(value & 0x7F | 0x80)
        value >>= 7
        out.size += 1
    out.text[out.size] = <char>value
    out.size += 1
    return 0


cdef inline int put_number(Out* out, uint64_t value, int size) noexcept nogil:
    cdef int index
    if ensure(out, 8) < 0:
        return -1
    for index in range(size):
        out.text[out.size + index] = <char>(value >> 8 * (size - 1 - index))
    out.size += size
    return 0


cdef inline int put_size(Out* out, const Op* op, bint short_, int64_t size) noexcept nogil:
    """A length or count; -1 for null."""
    if op.compact:
        return put_uvarint(out, <uint64_t>(size + 1))
    return put_number(out, <uint64_t>size, 2 if short_ else 4)


cdef int encode_struct(const Shape* shape, PyObject* body, Out* out) noexcept:
    cdef const Op* op
    cdef PyObject* value
    cdef int index
    cdef Py_ssize_t found = 0
    if not PyDict_CheckExact(body):
        return -1
    for index in range(shape.count):
        op = &shape.ops[index]
        if op.tagged:
            continue
        value = PyDict_GetItemWithError(body, op.key)
        if value != NULL:
            found += 1
            if encode_field(op, value, out) < 0:
                return -1
        elif op.omitted == NULL or append(out, op.omitted, op.omitted_size) < 0:
            return -1
    if shape.flexible and encode_tags(shape, body, out, &found) < 0:
        return -1
    return 0 if found == PyDict_Size(body) else -1


cdef int encode_field(const Op* op, PyObject* value, Out* out) noexcept:
    cdef Py_ssize_t index, count
    if not op.array:
        return encode_one(op, value, out)
    if value == Py_None:
        return put_size(out, op, False, -1) if op.nullable else -1
    if not PyList_CheckExact(value):
        return -1
    count = PyList_GET_SIZE(value)
    if count > 0x7FFFFFFF or put_size(out, op, False, count) < 0:
        return -1
    for index in range(count):
        if PyList_GET_SIZE(value) != count or encode_one(op, PyList_GET_ITEM(value, index), out) < 0:
            return -1
    return 0


cdef int encode_one(const Op* op, PyObject* value, Out* out) noexcept:
    cdef Py_ssize_t size
    cdef const char* text
    cdef bint nullable = op.nullable and not op.array
    if op.kind == STRING or op.kind == BYTES:
        if value == Py_None:
            return put_size(out, op, op.kind == STRING, -1) if nullable else -1
        if op.kind == STRING:
            if not PyUnicode_CheckExact(value):
                return -1
            text = PyUnicode_AsUTF8AndSize(value, &size)
            if text == NULL or size > MAX_STRING:
                return -1
        else:
            if not PyBytes_CheckExact(value):
                return -1
            text = PyBytes_AS_STRING_(value)
            size = PyBytes_GET_SIZE_(value)
            if size > 0x7FFFFFFE:
                return -1
        if put_size(out, op, op.kind == STRING, size) < 0:
            return -1
        return append(out, text, size)
    if op.kind == STRUCT:
        if nullable:
            if ensure(out, 1) < 0:
                return -1
            out.text[out.size] = (0 if op.tagged else -1) if value == Py_None else 1
            out.size += 1
            if value == Py_None:
                return 0
        return encode_struct(op.below, value, out)
    return encode_fixed(op, value, out)


cdef int encode_fixed(const Op* op, PyObject* value, Out* out) noexcept:
    cdef int overflow = 0
    cdef long long number
    cdef double real
    cdef uint64_t bits
    if op.kind == BOOL:
        if value != Py_True and value != Py_False:
            return -1
        return put_number(out, value == Py_True, 1)
    if op.kind == UUID:
        return encode_uuid(value, out)
    if op.kind == FLOAT64:
        if not PyFloat_CheckExact(value):
            return -1
        real = PyFloat_AS_DOUBLE(value)
        memcpy(&bits, &real, 8)
        return put_number(out, bits, 8)
    if not PyLong_CheckExact(value):
        return -1
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or not fits(op.kind, number):
        return -1
    return put_number(out, <uint64_t>number, op.size)


cdef inline bint fits(Byte kind, long long number) noexcept nogil:
    if kind == INT32:
        return -0x80000000LL <= number <= 0x7FFFFFFFLL
    if kind == INT16:
        return -0x8000 <= number <= 0x7FFF
    if kind == INT8:
        return -0x80 <= number <= 0x7F
    if kind == UINT16:
        return 0 <= number <= 0xFFFF
    if kind == UINT32:
        return 0 <= number <= 0xFFFFFFFFLL
    return True


cdef int encode_uuid(PyObject* value, Out* out) noexcept:
    """Bits beyond the 16 bytes, and characters of plain base64, are for the reference to judge."""
    cdef Py_ssize_t size
    cdef const char* text
    cdef int index
    cdef int have = 0
    cdef uint32_t bits = 0
    if not PyUnicode_CheckExact(value):
        return -1
    text = PyUnicode_AsUTF8AndSize(value, &size)
    if text == NULL or size != 22 or ensure(out, 16) < 0:
        return -1
    for index in range(22):
        if <Byte>text[index] > 127 or _URL_VALUES[<int>text[index]] < 0:
            return -1
        bits = bits << 6 | <uint32_t>_URL_VALUES[<int>text[index]]
        have += 6
        if have >= 8:
            have -= 8
            out.text[out.size] = <char>(bits >> have)
            out.size += 1
            bits &= (1 << have) - 1
    return -1 if bits else 0


cdef int encode_tags(const Shape* shape, PyObject* body, Out* out, Py_ssize_t* found) noexcept:
    """The tag section: known fields that differ from their defaults, then unknown tags above them."""
    cdef const Op* op
    cdef PyObject* value
    cdef Py_ssize_t mark, start, size
    cdef Py_ssize_t count_at = out.size
    cdef int index
    cdef int64_t sections = 0
    cdef int64_t last = -1
    if put_uvarint(out, 0) < 0:
        return -1
    for index in range(shape.tagged_count):
        op = shape.tagged[index]
        last = op.tag
        value = PyDict_GetItemWithError(body, op.key)
        if value == NULL:
            continue
        found[0] += 1
        mark = out.size
        if op.omitted == NULL or put_uvarint(out, op.tag) < 0 or ensure(out, MAX_VARINT) < 0:
            return -1
        start = out.size + MAX_VARINT
        out.size = start
        if encode_field(op, value, out) < 0:
            return -1
        size = out.size - start
        if size == op.omitted_size and memcmp(out.text + start, op.omitted, size) == 0:
            out.size = mark
            continue
        out.size = start - MAX_VARINT
        put_uvarint(out, size)
        memmove(out.text + out.size, out.text + start, size)
        out.size += size
        sections += 1
    value = PyDict_GetItemWithError(body, <PyObject*>_tags_key)
    if value != NULL:
        found[0] += 1
        if _encode_unknown(value, last, out, &sections) < 0:
            return -1
    if sections > 127:  # the count takes more than the byte that it has
        return -1
    out.text[count_at] = <char>sections
    return 0


cdef int _encode_unknown(PyObject* tags, int64_t last, Out* out, int64_t* sections) noexcept:
    cdef Py_ssize_t at = 0
    cdef PyObject* key
    cdef PyObject* raw
    cdef int overflow
    cdef long long tag
    if not PyDict_CheckExact(tags):
        return -1
    while PyDict_Next(tags, &at, &key, &raw):
        if not PyLong_CheckExact(key) or not PyBytes_CheckExact(raw):
            return -1
        tag = PyLong_AsLongLongAndOverflow(key, &overflow)
        if overflow or tag <= last or not fits(UINT32, tag):
            return -1
        last = tag
        if put_uvarint(out, <uint64_t>tag) < 0 or put_uvarint(out, PyBytes_GET_SIZE_(raw)) < 0:
            return -1
        if append(out, PyBytes_AS_STRING_(raw), PyBytes_GET_SIZE_(raw)) < 0:
            return -1
        sections[0] += 1
    return 0
