# The cursor over the bytes. Its readers give 0, or -1 when the bytes are not what they should be.

cdef int64_t MAX_ELEMENTS = primitives.MAX_ELEMENTS

cdef struct Cursor:
    const Byte* start  # of the data, where offsets begin
    const Byte* at
    const Byte* end
    int64_t elements  # that the body may still have


cdef inline uint16_t load16(const Byte* at) noexcept nogil:
    return <uint16_t>(at[0] << 8 | at[1])


cdef inline uint32_t load32(const Byte* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | <uint32_t>at[3]


cdef inline uint64_t load64(const Byte* at) noexcept nogil:
    return <uint64_t>load32(at) << 32 | load32(at + 4)


cdef inline double load_double(const Byte* at) noexcept nogil:
    cdef uint64_t bits = load64(at)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline int read_uvarint(Cursor* c, uint32_t* value) noexcept nogil:
    if c.at < c.end and c.at[0] < 0x80:
        value[0] = c.at[0]
        c.at += 1
        return 0
    return read_long_uvarint(c, value)


cdef int read_long_uvarint(Cursor* c, uint32_t* value) noexcept nogil:
    """At most 5 bytes and 32 bits; longer than needed is accepted."""
    cdef uint64_t found = 0
    cdef int shift
    cdef Byte byte
    for shift in range(0, 35, 7):
        if c.at >= c.end:
            return -1
        byte = c.at[0]
        c.at += 1
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if found > 0xFFFFFFFFU:
                return -1
            value[0] = <uint32_t>found
            return 0
    return -1


cdef inline int read_size(Cursor* c, const Op* op, bint short_, int64_t* size) noexcept nogil:
    """A length or count; -1 for null, if that is allowed."""
    cdef uint32_t value
    if op.compact:
        if read_uvarint(c, &value) < 0:
            return -1
        size[0] = <int64_t>value - 1
    elif short_:
        if c.end - c.at < 2:
            return -1
        size[0] = <int16_t>load16(c.at)
        c.at += 2
    else:
        if c.end - c.at < 4:
            return -1
        size[0] = <int32_t>load32(c.at)
        c.at += 4
    if size[0] < 0 and (size[0] != -1 or not op.nullable):
        return -1
    return 0


cdef inline int read_blob_size(Cursor* c, const Op* op, int64_t* size) noexcept nogil:
    """Of a string or bytes; that many bytes are there. Elements of arrays are never null."""
    if read_size(c, op, op.kind == STRING, size) < 0 or size[0] > c.end - c.at:
        return -1
    if size[0] < 0 and op.array:
        return -1
    return -1 if op.kind == STRING and size[0] > MAX_STRING else 0


cdef inline int read_count(Cursor* c, const Op* op, int64_t* count) noexcept nogil:
    """Of an array; that many elements may be there."""
    if read_size(c, op, False, count) < 0:
        return -1
    if count[0] > (c.end - c.at) // (op.size if op.size else op.least):
        return -1
    if op.kind == STRUCT and count[0] > 0:
        c.elements -= count[0]
        if c.elements < 0:
            return -1
    return 0


cdef inline int read_null_mark(Cursor* c, const Op* op) noexcept nogil:
    """Of a nullable struct: 1 for null, 0 for a struct. A tagged one has an unsigned varint, others an int8."""
    cdef uint32_t mark
    if op.tagged:
        if read_uvarint(c, &mark) < 0:
            return -1
        return mark == 0
    if c.at >= c.end:
        return -1
    c.at += 1
    return <int8_t>(c.at - 1)[0] < 0


cdef inline int read_tag(Cursor* c, int64_t* last, uint32_t* tag, uint32_t* size) noexcept nogil:
    if read_uvarint(c, tag) < 0 or read_uvarint(c, size) < 0:
        return -1
    if <int64_t>tag[0] <= last[0] or <int64_t>size[0] > c.end - c.at:
        return -1
    last[0] = tag[0]
    return 0
