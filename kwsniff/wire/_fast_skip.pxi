# The walk over a body that only validates it, and finds what walk.py would.

cdef int skip_struct(const Shape* shape, Cursor* c, Sink* sink) noexcept nogil:
    cdef const Op* op
    cdef int index
    cdef Nearest own
    cdef Py_ssize_t errors = sink.errors.count
    cdef Py_ssize_t records = sink.records.count
    memset(&own, 0, sizeof(own))
    for index in range(shape.skip_count):
        op = &shape.skips[index]
        if op.kind == RUN:
            if c.end - c.at < op.size:
                return -1
            c.at += op.size
        elif (skip_array(op, c, sink, &own) if op.array else skip_one(op, c, sink, &own)) < 0:
            return -1
    if shape.flexible:
        if c.at < c.end and c.at[0] == 0:
            c.at += 1
        elif skip_tags(shape, c, sink, &own) < 0:
            return -1
    return close_struct(shape, sink, &own, errors, records)


cdef int skip_one(const Op* op, Cursor* c, Sink* sink, Nearest* own) noexcept nogil:
    cdef int64_t size
    cdef int mark
    cdef const Byte* at
    if op.kind == STRING or op.kind == BYTES:
        if read_blob_size(c, op, &size) < 0:
            return -1
        if size < 0:
            return 0
        at = c.at
        c.at += size
        if op.fact:
            return note_text(op, at, size, sink, own)
        return note_records(op, at, size, 0, sink) if op.treatment in (RECORDS, SLICE) else 0
    if op.kind == STRUCT:
        if op.nullable and not op.array:
            mark = read_null_mark(c, op)
            if mark:
                return -1 if mark < 0 else 0
        return skip_struct(op.below, c, sink)
    if c.end - c.at < op.size:
        return -1
    c.at += op.size
    return note_fixed(op, c.at - op.size, sink, own) if op.fact else 0


cdef int skip_array(const Op* op, Cursor* c, Sink* sink, Nearest* own) noexcept nogil:
    cdef int64_t count, index
    if read_count(c, op, &count) < 0:
        return -1
    if op.size and op.fact != TOPIC_ID:
        c.at += max(0, count) * op.size
        return 0
    if op.kind == STRUCT and op.below.fixed_size and count > 0:
        if count > (c.end - c.at) // op.below.fixed_size:
            return -1
        c.at += count * op.below.fixed_size
        return 0
    for index in range(count):
        if skip_one(op, c, sink, own) < 0:
            return -1
    return 0


cdef int skip_tags(const Shape* shape, Cursor* c, Sink* sink, Nearest* own) noexcept nogil:
    """What is found in a tagged field would stand in the wrong order: then it is for walk.py."""
    cdef uint32_t count, tag, size
    cdef int64_t last = -1
    cdef const Op* op
    cdef const Byte* end
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
            c.at = end
            continue
        if op.facts_below or (skip_array(op, c, sink, own) if op.array else skip_one(op, c, sink, own)) < 0:
            return -1
        if c.at != end:
            return -1
    return 0
