# Records fields -> the JSON text of output/recordset.py.
#
# In: pointers to entries that have been found to be whole. Out: text behind what is there already; False for
# an entry that is not for this file, whatever has been written of it by then.

cdef enum:
    FIXED = 1024  # more than the names and numbers of a header or record


ctypedef struct Shown:
    Text out
    int64_t left  # bytes of JSON that may still be shown, below 0: no further record
    bint quoted


cdef bint put_headers(Text *out, const uint8_t *at, const uint8_t *stop, int64_t count) except -1:
    cdef Sized key, value
    cdef int64_t i
    for i in range(count):
        at = read_header(at, stop, &key, &value)
        if at == NULL:
            return False
        reserve(out, FIXED)
        put_literal(&out.at, b',{"key":' if i else b'{"key":')
        if not put_string(out, key.data, key.size, False):
            return False
        reserve(out, FIXED)
        put_literal(&out.at, b',"value":')
        put_payload(out, value.data, value.size)
        reserve(out, FIXED)
        put_literal(&out.at, b"}")
    return at == stop


cdef int open_record(
    Shown *shown, int64_t offset, int64_t timestamp, bint dated, Sized key, Sized value
) except -1:
    """A record up to the beginning of its headers."""
    cdef Text *out = &shown.out
    reserve(out, FIXED)
    put_known(out, b'{"offset":', offset, True, shown.quoted)
    put_known(out, b',"timestamp":', timestamp, dated, shown.quoted)
    put_literal(&out.at, b',"key":')
    put_payload(out, key.data, key.size)
    reserve(out, FIXED)
    put_literal(&out.at, b',"value":')
    put_payload(out, value.data, value.size)
    reserve(out, FIXED)
    put_literal(&out.at, b',"headers":[')
    return 0


cdef inline int close_record(Shown *shown, Py_ssize_t before) noexcept nogil:
    """The record that begins at `before` is complete but for `},`, which is part of its price."""
    put_literal(&shown.out.at, b"},")
    shown.left -= (shown.out.at - shown.out.start) - before
    return 0


cdef int close_entry(Shown *shown) except -1:
    cdef Text *out = &shown.out
    reserve(out, FIXED)
    if (out.at - 1)[0] == c",":
        out.at -= 1
    put_literal(&out.at, b"]}")
    return 0


cdef bint put_records(Shown *shown, const uint8_t *at, const uint8_t *end, const uint8_t *batch) except -1:
    """All records of a batch, or False."""
    cdef int32_t count = <int32_t>load32(batch + 57)
    cdef int64_t base = <int64_t>load64(batch), first = <int64_t>load64(batch + 27)
    cdef int64_t newest = <int64_t>load64(batch + 35), timestamp
    cdef bint append = batch[22] & APPEND
    cdef Text *out = &shown.out
    cdef const uint8_t *behind
    cdef Py_ssize_t before
    cdef Record found
    cdef int32_t i
    if count < 0:
        return False
    for i in range(count):
        if shown.left < 0:
            return False
        before = out.at - out.start
        behind = read_record(at, end, &found)
        if behind == NULL:
            return False
        timestamp = newest if append else wrapped(first, found.timestamp)
        open_record(shown, wrapped(base, found.offset), timestamp, True, found.key, found.value)
        if found.header_count and not put_headers(out, found.headers, behind, found.header_count):
            return False
        reserve(out, FIXED)
        put_literal(&out.at, b"]")
        if found.attributes:
            put_known(out, b',"attributes":', found.attributes, True, False)
        close_record(shown, before)
        at = behind
    return at == end


cdef inline int put_flag(Text *out, const char *name, bint value) noexcept nogil:
    put_literal(&out.at, name)
    put_literal(&out.at, b"true" if value else b"false")
    return 0


cdef int open_batch(Shown *shown, const uint8_t *at) except -1:
    """A batch up to the beginning of its records."""
    cdef Text *out = &shown.out
    cdef bint quoted = shown.quoted
    cdef int16_t attributes = <int16_t>load16(at + 21)
    reserve(out, FIXED)
    put_known(out, b'{"baseOffset":', <int64_t>load64(at), True, quoted)
    put_literal(&out.at, b',"magic":2,"codec":"')
    put_literal(&out.at, CODECS[attributes & CODEC])
    put_known(out, b'","crcValid":true,"batchLength":', <int32_t>load32(at + 8), True, False)
    put_known(out, b',"partitionLeaderEpoch":', <int32_t>load32(at + 12), True, False)
    put_known(out, b',"crc":', load32(at + 17), True, False)
    put_known(out, b',"attributes":', attributes, True, False)
    put_literal(&out.at, b',"timestampType":"LOG_APPEND_TIME"' if attributes & APPEND
                else b',"timestampType":"CREATE_TIME"')
    put_flag(out, b',"isTransactional":', attributes & TRANSACTIONAL)
    put_flag(out, b',"isControl":', attributes & CONTROL)
    put_known(out, b',"deleteHorizonMs":', <int64_t>load64(at + 27), attributes & HORIZON, quoted)
    put_known(out, b',"lastOffsetDelta":', <int32_t>load32(at + 23), True, False)
    put_known(out, b',"baseTimestamp":', <int64_t>load64(at + 27), True, quoted)
    put_known(out, b',"maxTimestamp":', <int64_t>load64(at + 35), True, quoted)
    put_known(out, b',"producerId":', <int64_t>load64(at + 43), True, quoted)
    put_known(out, b',"producerEpoch":', <int16_t>load16(at + 51), True, False)
    put_known(out, b',"baseSequence":', <int32_t>load32(at + 53), True, False)
    put_known(out, b',"recordCount":', <int32_t>load32(at + 57), True, False)
    put_literal(&out.at, b',"records":[')
    return 0


cdef bytes unpacked(int codec, const uint8_t *data, Py_ssize_t size, int magic, decompress, most):
    try:
        return decompress(codec, PyBytes_FromStringAndSize(<const char *>data, size), most, magic)
    except DecodeError:
        return None


cdef bint put_batch(Shown *shown, const uint8_t *at, Py_ssize_t size, decompress, most) except -1:
    cdef const uint8_t *end = at + size
    cdef int codec = at[22] & CODEC
    cdef const uint8_t *start
    cdef bytes content
    if at[22] & CONTROL or codec > 4 or not has_valid_crc(at, size):
        return False
    open_batch(shown, at)
    if codec == 0:
        if not put_records(shown, at + HEADER_SIZE, end, at):
            return False
    elif size > HEADER_SIZE or load32(at + 57):
        content = unpacked(codec, at + HEADER_SIZE, size - HEADER_SIZE, 2, decompress, most)
        if content is None:
            return False
        start = <const uint8_t *>PyBytes_AS_STRING(content)
        if not put_records(shown, start, start + PyBytes_GET_SIZE(content), at):
            return False
    close_entry(shown)
    return True


cdef int open_message(Shown *shown, const uint8_t *at, int64_t base, Message *found) except -1:
    """A plain message or wrapper up to the beginning of its records."""
    cdef Text *out = &shown.out
    cdef bint dated = at[16] == 1
    reserve(out, FIXED)
    put_known(out, b'{"baseOffset":', base, True, shown.quoted)
    put_known(out, b',"magic":', at[16], True, False)
    put_literal(&out.at, b',"codec":"')
    put_literal(&out.at, CODECS[found.attributes & CODEC])
    put_known(out, b'","crcValid":true,"offset":', found.offset, True, shown.quoted)
    put_known(out, b',"messageSize":', <int32_t>load32(at + 8), True, False)
    put_known(out, b',"crc":', load32(at + 12), True, False)
    put_known(out, b',"attributes":', <int8_t>found.attributes, True, False)
    put_literal(&out.at, b',"timestampType":null' if not dated
                else b',"timestampType":"LOG_APPEND_TIME"' if found.attributes & APPEND
                else b',"timestampType":"CREATE_TIME"')
    put_known(out, b',"timestamp":', found.timestamp, dated, shown.quoted)
    put_literal(&out.at, b',"records":[')
    return 0


cdef bint put_inner(Shown *shown, const uint8_t *wrapper, Message *outer, bytes content) except -1:
    """The wrapper at `wrapper` with the messages that it decompressed to, or False."""
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(content)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(content)
    cdef uint8_t magic = wrapper[16]
    cdef bint append = magic and outer.attributes & APPEND
    cdef int64_t shift, timestamp
    cdef Py_ssize_t size, before
    cdef Message found
    if at == end or not shift_of(at, end, magic, outer.offset, &shift):
        return False
    open_message(shown, wrapper, wrapped(<int64_t>load64(at) if end - at >= 12 else 0, shift), outer)
    while at < end:
        size = inner_message(at, end, magic, &found)
        if size == 0 or shown.left < 0:
            return False
        before = shown.out.at - shown.out.start
        timestamp = outer.timestamp if append else found.timestamp
        open_record(shown, wrapped(found.offset, shift), timestamp, magic, found.key, found.value)
        put_literal(&shown.out.at, b"]")
        close_record(shown, before)
        at += size
    close_entry(shown)
    return True


cdef bint put_message(Shown *shown, const uint8_t *at, Py_ssize_t size, decompress, most) except -1:
    cdef Message found
    cdef Py_ssize_t before
    cdef bytes content
    cdef int codec
    if not read_message(at, size, &found) or not found.valid or shown.left < 0:
        return False
    codec = found.attributes & CODEC
    if codec:
        if codec > 4 or found.value.size < 0:
            return False
        content = unpacked(codec, found.value.data, found.value.size, at[16], decompress, most)
        return content is not None and put_inner(shown, at, &found, content)
    open_message(shown, at, found.offset, &found)
    before = shown.out.at - shown.out.start
    open_record(shown, found.offset, found.timestamp, at[16] == 1, found.key, found.value)
    put_literal(&shown.out.at, b"]")
    close_record(shown, before)
    close_entry(shown)
    return True


def records_json(bytes data not None, *, left, most, bint allow_partial, bint quoted, decompress, other):
    """(JSON text of all entries with their records, what is left of `left`): output/recordset.py, `decoded`.

    left: bytes of records that may be shown. most: bytes that an entry may decompress to, by `decompress`
    (compression.decompress). quoted: int64 are strings. other(number, at, end, left) -> (JSON text, left) is
    asked for an entry that is not for this file: control batches, nested sets, whatever is damaged.
    None where the entries do not follow each other as they should, whatever `other` has been asked before.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *end = start + PyBytes_GET_SIZE(data)
    cdef const uint8_t *at = start
    cdef Shown shown
    cdef Py_ssize_t size = 0, number = 0, before
    cdef int64_t left_before
    cdef Hop hop
    cdef bytes text
    memset(&shown, 0, sizeof(Shown))
    shown.left = min(left, <int64_t>1 << 62)
    shown.quoted = quoted
    try:
        reserve(&shown.out, 2 * (end - start) + FIXED)
        put_literal(&shown.out.at, b"[")
        while True:
            hop = next_entry(at, end, &size)
            if hop != AT_ENTRY:
                break
            before, left_before = shown.out.at - shown.out.start, shown.left
            if not (put_batch if at[16] == 2 else put_message)(&shown, at, size, decompress, most):
                shown.out.at = shown.out.start + before
                text, shown.left = other(number, at - start, at - start + size, left_before)
                reserve(&shown.out, PyBytes_GET_SIZE(text) + FIXED)
                memcpy(shown.out.at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
                shown.out.at += PyBytes_GET_SIZE(text)
            reserve(&shown.out, FIXED)
            put_literal(&shown.out.at, b",")
            at += size
            number += 1
        if hop == AT_ODDS or (hop == AT_CUT and not allow_partial):
            return None
        if number:
            shown.out.at -= 1
        put_literal(&shown.out.at, b"]")
        text = PyBytes_FromStringAndSize(shown.out.start, shown.out.at - shown.out.start)
        return text, shown.left
    finally:
        PyMem_RawFree(shown.out.start)
