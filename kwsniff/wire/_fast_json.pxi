# Bytes -> JSON text, as output/present.py and msgspec make it of a body. -1: they are to do it.


cdef int write_struct(const Shape* shape, Cursor* c, Out* o, Sink* sink) noexcept nogil:
    cdef const Op* op
    cdef int index, failed
    cdef Nearest own
    cdef Py_ssize_t[MAX_TAGGED] ends  # where the values of tagged fields end
    cdef Py_ssize_t errors = sink.errors.count
    cdef Py_ssize_t records = sink.records.count
    memset(&own, 0, sizeof(own))
    if ensure(o, 2) < 0:
        return -1
    if shape.count == 0:
        o.text[o.size] = c'{'
        o.size += 1
    for index in range(shape.count):
        op = &shape.ops[index]
        if op.tagged:
            if append(o, op.text, op.text_size) < 0 or append(o, op.default_text, op.default_size) < 0:
                return -1
            ends[op.slot] = o.size
            continue
        if op.treatment in (RECORDS, SLICE):
            failed = write_records(op, c, o, sink)
        else:
            if ensure(o, op.text_size + ROOM) < 0:
                return -1
            put_text(o, op.text, op.text_size)
            if op.array:
                failed = write_array(op, c, o, sink, &own)
            elif op.size and not op.treatment and not op.fact:
                if c.end - c.at < op.size:
                    return -1
                write_fixed(op.kind, c.at, o)
                c.at += op.size
                continue
            else:
                failed = write_one(op, c, o, sink, &own)
        if failed:
            return -1
    if shape.flexible:
        if c.at < c.end and c.at[0] == 0:
            c.at += 1
        elif write_tags(shape, c, o, sink, &own, ends, records) < 0:
            return -1
    if ensure(o, 2) < 0:
        return -1
    o.text[o.size] = c'}'
    o.size += 1
    return close_struct(shape, sink, &own, errors, records)


cdef int write_one(const Op* op, Cursor* c, Out* o, Sink* sink, Nearest* own) noexcept nogil:
    """There is room for ROOM characters."""
    cdef const Byte* at = c.at
    cdef int mark
    if op.size:
        if c.end - at < op.size or op.treatment:
            return -1
        c.at = at + op.size
        write_fixed(op.kind, at, o)
        return note_fixed(op, at, sink, own) if op.fact else 0
    if op.kind == STRUCT:
        if op.nullable and not op.array:
            mark = read_null_mark(c, op)
            if mark:
                return -1 if mark < 0 else write_null(o)
        return write_struct(op.below, c, o, sink)
    return write_blob(op, c, o, sink, own)


cdef int write_blob(const Op* op, Cursor* c, Out* o, Sink* sink, Nearest* own) noexcept nogil:
    cdef int64_t size
    cdef const Byte* at
    if read_blob_size(c, op, &size) < 0:
        return -1
    if size < 0:
        return write_null(o)
    at = c.at
    c.at += size
    if op.treatment == SECRET:
        return append(o, b'"<redacted>"', 12)
    if op.treatment == FALLBACK and (size or op.kind == STRING):
        return -1
    if op.kind == BYTES:
        return write_base64(at, size, o)
    if op.fact and note_text(op, at, size, sink, own) < 0:
        return -1
    return write_string(at, size, o)


cdef inline int write_null(Out* o) noexcept nogil:
    return append(o, b"null", 4)


cdef int write_array(const Op* op, Cursor* c, Out* o, Sink* sink, Nearest* own) noexcept nogil:
    cdef int64_t count, index
    if read_count(c, op, &count) < 0:
        return -1
    if count < 0:
        return write_null(o)
    o.text[o.size] = c'['
    o.size += 1
    if op.size and not op.treatment and not op.fact:
        return write_fixed_array(op, count, c, o)
    for index in range(count):
        if ensure(o, ROOM) < 0:
            return -1
        if index:
            o.text[o.size] = c','
            o.size += 1
        if write_one(op, c, o, sink, own) < 0:
            return -1
    return append(o, b"]", 1)


cdef int write_fixed_array(const Op* op, int64_t count, Cursor* c, Out* o) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        if ensure(o, ROOM) < 0:
            return -1
        write_fixed(op.kind, c.at, o)
        c.at += op.size
        o.text[o.size] = c','
        o.size += 1
    o.size -= count > 0
    return append(o, b"]", 1)


cdef int write_records(const Op* op, Cursor* c, Out* o, Sink* sink) noexcept nogil:
    cdef int64_t size
    cdef const Byte* at
    if op.array or read_blob_size(c, op, &size) < 0:
        return -1
    at = c.at
    if size >= 0:
        if op.treatment == SLICE:
            return -1
        c.at += size
    if size < 0 or sink.decoded_records:
        if append(o, op.text, op.text_size) < 0:
            return -1
        return write_null(o) if size < 0 else note_records(op, at, size, o.size, sink)
    if append(o, op.records_text, op.records_size) < 0 or ensure(o, ROOM) < 0:
        return -1
    write_unsigned(<uint64_t>size, o)
    if append(o, op.summary_text, op.summary_size) < 0:
        return -1
    return note_records(op, at, size, o.size, sink)


cdef int write_tags(
    const Shape* shape, Cursor* c, Out* o, Sink* sink, Nearest* own, Py_ssize_t* ends, Py_ssize_t records
) noexcept nogil:
    """The tag section: known fields go where their defaults are, unknown ones to the end."""
    cdef uint32_t count, tag, size
    cdef int64_t last = -1
    cdef bint unknown = False
    cdef const Op* op
    cdef const Byte* end
    cdef Py_ssize_t start
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
            if c.elements < 0 or write_unknown(tag, c.at, size, unknown, shape.count == 0, o) < 0:
                return -1
            unknown = True
            c.at = end
            continue
        if op.facts_below:  # they would stand in the wrong order
            return -1
        start = o.size
        if ensure(o, ROOM) < 0:
            return -1
        if (write_array(op, c, o, sink, own) if op.array else write_one(op, c, o, sink, own)) < 0:
            return -1
        if c.at != end or move_value(shape, op, start, o, sink, ends, records) < 0:
            return -1
    return append(o, b"}", 1) if unknown else 0


cdef int move_value(
    const Shape* shape, const Op* op, Py_ssize_t start, Out* o, Sink* sink, Py_ssize_t* ends,
    Py_ssize_t records,
) noexcept nogil:
    """The text from `start` on replaces the default of `op`; what stands behind that moves."""
    cdef Py_ssize_t size = o.size - start
    cdef Py_ssize_t old_end = ends[op.slot]
    cdef Py_ssize_t where = old_end - op.default_size
    cdef Py_ssize_t grown = size - op.default_size
    cdef Py_ssize_t index
    cdef FoundRecords* place
    if ensure(o, size) < 0:
        return -1
    memcpy(o.text + o.size, o.text + start, size)
    memmove(o.text + where + size, o.text + old_end, start - old_end)
    memcpy(o.text + where, o.text + o.size, size)
    o.size += grown - size
    for index in range(shape.tagged_count):
        if ends[index] >= old_end:
            ends[index] += grown
    for index in range(records, sink.records.count):
        place = &(<FoundRecords*>sink.records.items)[index]
        if place.splice > where:
            place.splice += grown
    return 0


cdef int write_unknown(
    uint32_t tag, const Byte* at, uint32_t size, bint more, bint alone, Out* o
) noexcept nogil:
    cdef const char* opened = b',"_tags":{'
    if not more and append(o, opened + alone, 10 - alone) < 0:
        return -1
    if ensure(o, ROOM) < 0:
        return -1
    if more:
        o.text[o.size] = c','
        o.size += 1
    o.text[o.size] = c'"'
    o.size += 1
    write_unsigned(tag, o)
    return -1 if append(o, b'":', 2) < 0 else write_base64(at, size, o)
