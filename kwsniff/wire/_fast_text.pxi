# Scalars as JSON text. What has no result needs room for ROOM characters.

cdef enum Class:  # of bytes in a string
    PLAIN
    ESCAPED
    WIDE

cdef Byte[256] _CLASSES
memset(_CLASSES, PLAIN, 128)
memset(_CLASSES, ESCAPED, 32)
memset(&_CLASSES[128], WIDE, 128)
_CLASSES[0x22] = ESCAPED
_CLASSES[0x5C] = ESCAPED

cdef const char* HEX = b"0123456789abcdef"
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef char[200] _PAIRS
for _place in range(100):
    _PAIRS[2 * _place] = <char>(48 + _place // 10)
    _PAIRS[2 * _place + 1] = <char>(48 + _place % 10)

cdef enum:
    MAX_NUMBER = 24  # characters of a number, bool, null or uuid, quotes included; 20 are written of any number
    ROOM = MAX_NUMBER + TEXT_ROOM


cdef int append_number(Out* out, int64_t value) noexcept nogil:
    if ensure(out, ROOM) < 0:
        return -1
    write_signed(value, out)
    return 0


cdef int append_string(Out* out, const Byte* at, Py_ssize_t size) noexcept nogil:
    """In quotes. -1: it is not UTF-8."""
    return write_string(at, size, out)


cdef inline void put_text(Out* o, const char* text, Py_ssize_t size) noexcept nogil:
    """A key, which has TEXT_ROOM bytes at least: a copy of fixed size costs less than a call. There is room."""
    memcpy(o.text + o.size, text, TEXT_ROOM)
    if size > TEXT_ROOM:
        memcpy(o.text + o.size + TEXT_ROOM, text + TEXT_ROOM, size - TEXT_ROOM)
    o.size += size


cdef inline void write_fixed(Byte kind, const Byte* at, Out* o) noexcept nogil:
    if kind == INT32:
        write_signed(<int32_t>load32(at), o)
    elif kind == INT16:
        write_signed(<int16_t>load16(at), o)
    elif kind == INT64:
        write_signed(<int64_t>load64(at), o)
    elif kind == BOOL:
        if at[0]:
            memcpy(o.text + o.size, b"true", 4)
            o.size += 4
        else:
            memcpy(o.text + o.size, b"false", 5)
            o.size += 5
    elif kind == INT8:
        write_signed(<int8_t>at[0], o)
    elif kind == UUID:
        o.text[o.size] = c'"'
        write_uuid(at, <Byte*>o.text + o.size + 1)
        o.text[o.size + 23] = c'"'
        o.size += 24
    elif kind == UINT16:
        write_unsigned(load16(at), o)
    elif kind == UINT32:
        write_unsigned(load32(at), o)


cdef inline void write_signed(int64_t value, Out* o) noexcept nogil:
    if value < 0:
        o.text[o.size] = c'-'
        o.size += 1
        write_unsigned(<uint64_t>0 - <uint64_t>value, o)
    else:
        write_unsigned(<uint64_t>value, o)


cdef inline void write_unsigned(uint64_t value, Out* o) noexcept nogil:
    cdef char[40] digits
    cdef int at = 20
    if value < 10:
        o.text[o.size] = <char>(48 + value)
        o.size += 1
        return
    while value >= 100:
        at -= 2
        memcpy(&digits[at], &_PAIRS[2 * (value % 100)], 2)
        value //= 100
    if value >= 10:
        at -= 2
        memcpy(&digits[at], &_PAIRS[2 * value], 2)
    else:
        at -= 1
        digits[at] = <char>(48 + value)
    memcpy(o.text + o.size, &digits[at], 20)
    o.size += 20 - at


cdef int write_string(const Byte* at, Py_ssize_t size, Out* o) noexcept nogil:
    """Escaped as msgspec does it: what JSON demands, nothing more. -1: it is not UTF-8."""
    cdef const Byte* end = at + size
    cdef Byte* text
    cdef uint64_t word
    cdef int length
    if ensure(o, 6 * size + 2) < 0:
        return -1
    text = <Byte*>o.text + o.size
    text[0] = c'"'
    text += 1
    while at < end:
        if end - at >= 8:
            memcpy(&word, at, 8)
            if is_plain(word):
                memcpy(text, at, 8)
                text += 8
                at += 8
                continue
        if _CLASSES[at[0]] == PLAIN:
            text[0] = at[0]
            text += 1
            at += 1
        elif _CLASSES[at[0]] == WIDE:
            length = utf8_length(at, end)
            if length == 0:
                return -1
            memcpy(text, at, length)
            text += length
            at += length
        else:
            text += write_escape(at[0], text)
            at += 1
    text[0] = c'"'
    o.size = <char*>text + 1 - o.text
    return 0


cdef inline bint is_plain(uint64_t word) noexcept nogil:
    """Whether 8 bytes are ASCII that needs no escape: none is below space, a quote, a backslash, above 127."""
    cdef uint64_t ones = 0x0101010101010101ULL
    cdef uint64_t highs = 0x8080808080808080ULL
    cdef uint64_t quote = word ^ (ones * 0x22)
    cdef uint64_t slash = word ^ (ones * 0x5C)
    return (word | (word - ones * 0x20) | (quote - ones) | (slash - ones)) & highs == 0


cdef inline int write_escape(Byte byte, Byte* text) noexcept nogil:
    cdef Byte letter = 0
    if byte == 0x22 or byte == 0x5C:
        letter = byte
    elif byte == 8:
        letter = c'b'
    elif byte == 9:
        letter = c't'
    elif byte == 10:
        letter = c'n'
    elif byte == 12:
        letter = c'f'
    elif byte == 13:
        letter = c'r'
    text[0] = c'\\'
    if letter:
        text[1] = letter
        return 2
    memcpy(text + 1, b"u00", 3)
    text[4] = HEX[byte >> 4]
    text[5] = HEX[byte & 15]
    return 6


cdef inline int utf8_length(const Byte* at, const Byte* end) noexcept nogil:
    """Bytes of the character there; 0: it is none (Unicode, table 3-7)."""
    cdef Byte low = 0x80
    cdef Byte high = 0xBF
    cdef int length, index
    if 0xC2 <= at[0] <= 0xDF:
        length = 2
    elif 0xE0 <= at[0] <= 0xEF:
        length = 3
        if at[0] == 0xE0:
            low = 0xA0
        elif at[0] == 0xED:
            high = 0x9F
    elif 0xF0 <= at[0] <= 0xF4:
        length = 4
        if at[0] == 0xF0:
            low = 0x90
        elif at[0] == 0xF4:
            high = 0x8F
    else:
        return 0
    if end - at < length or not low <= at[1] <= high:
        return 0
    for index in range(2, length):
        if at[index] & 0xC0 != 0x80:
            return 0
    return length


cdef int write_base64(const Byte* at, Py_ssize_t size, Out* o) noexcept nogil:
    cdef const Byte* end = at + size
    cdef char* text
    cdef uint32_t bits
    if ensure(o, (size + 2) // 3 * 4 + 2) < 0:
        return -1
    text = o.text + o.size
    text[0] = c'"'
    text += 1
    while end - at >= 3:
        bits = <uint32_t>at[0] << 16 | <uint32_t>at[1] << 8 | at[2]
        text[0] = BASE64[bits >> 18]
        text[1] = BASE64[bits >> 12 & 63]
        text[2] = BASE64[bits >> 6 & 63]
        text[3] = BASE64[bits & 63]
        at += 3
        text += 4
    if end > at:
        bits = <uint32_t>at[0] << 16 | (<uint32_t>at[1] << 8 if end - at == 2 else 0)
        text[0] = BASE64[bits >> 18]
        text[1] = BASE64[bits >> 12 & 63]
        text[2] = BASE64[bits >> 6 & 63] if end - at == 2 else <char>c'='
        text[3] = c'='
        text += 4
    text[0] = c'"'
    o.size = text + 1 - o.text
    return 0
