# JSON text as msgspec writes it, and the rule for keys and values (output/recordset.py, `text`).
#
# In: bytes and numbers. Out: text at the end of a buffer that grows with what is written to it. A string is
# looked at eight bytes a step: most of it needs no treatment.

cdef extern from *:
    """
    static inline void put_word(char *to, const unsigned char *from) { memcpy(to, from, 8); }

    static inline int first_byte(uint64_t flags) {
    #if defined(__GNUC__) || defined(__clang__)
        return __builtin_ctzll(flags) >> 3;
    #else
        int i = 0;
        while (!(flags & 0xff)) { flags >>= 8; i++; }
        return i;
    #endif
    }

    /* The lowest byte flagged (0x80) is the first that is not plain: below 0x20, 0x7f or above, " or \\. */
    static inline uint64_t not_plain(uint64_t word) {
        const uint64_t ones = 0x0101010101010101ull;
        return (word | (word - ones * 0x20) | ((word ^ ones * 0x22) - ones) | ((word ^ ones * 0x5c) - ones)
                | ((word ^ ones * 0x7f) - ones)) & ones * 0x80;
    }

    static inline void put_literal(char **to, const char *text) {
        size_t size = strlen(text);
        memcpy(*to, text, size);
        *to += size;
    }

    static const char digit_pairs[] =
        "00010203040506070809101112131415161718192021222324"
        "25262728293031323334353637383940414243444546474849"
        "50515253545556575859606162636465666768697071727374"
        "75767778798081828384858687888990919293949596979899";

    static inline char *put_number(char *to, int64_t value) {
        char digits[20];
        int at = 20;
        uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
        if (value < 0) *to++ = '-';
        while (left >= 100) {
            at -= 2;
            memcpy(digits + at, digit_pairs + left % 100 * 2, 2);
            left /= 100;
        }
        if (left >= 10) {
            at -= 2;
            memcpy(digits + at, digit_pairs + left * 2, 2);
        } else digits[--at] = (char)('0' + left);
        memcpy(to, digits + at, 20 - at);
        return to + (20 - at);
    }

    static inline char *put_base64(char *to, const unsigned char *p, size_t size) {
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (; size >= 3; p += 3, size -= 3) {
            uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
            *to++ = letters[bits >> 18];
            *to++ = letters[bits >> 12 & 63];
            *to++ = letters[bits >> 6 & 63];
            *to++ = letters[bits & 63];
        }
        if (size) {
            uint32_t bits = (uint32_t)p[0] << 16 | (size == 2 ? (uint32_t)p[1] << 8 : 0);
            *to++ = letters[bits >> 18];
            *to++ = letters[bits >> 12 & 63];
            *to++ = size == 2 ? letters[bits >> 6 & 63] : '=';
            *to++ = '=';
        }
        return to;
    }
    """
    void put_word(char *to, const uint8_t *source) noexcept nogil
    int first_byte(uint64_t flags) noexcept nogil
    uint64_t not_plain(uint64_t word) noexcept nogil
    void put_literal(char **to, const char *text) noexcept nogil
    char *put_number(char *to, int64_t value) noexcept nogil
    char *put_base64(char *to, const uint8_t *data, size_t size) noexcept nogil


cdef enum:
    SLACK = 32  # bytes that a write of fixed size behind a string may count on


ctypedef struct Text:
    char *start
    char *at
    char *end


cdef int reserve(Text *out, Py_ssize_t more) except -1:
    """Room for `more` bytes and some."""
    cdef Py_ssize_t size = out.at - out.start
    cdef Py_ssize_t room
    if out.end - out.at >= more + SLACK:
        return 0
    room = size + (size >> 1) + more + 2 * SLACK
    cdef char *start = <char *>PyMem_RawRealloc(out.start, room)
    if start == NULL:
        raise MemoryError
    out.start, out.at, out.end = start, start + size, start + room
    return 0


cdef inline int put_int64(Text *out, int64_t value, bint quoted) noexcept nogil:
    if not quoted:
        out.at = put_number(out.at, value)
        return 0
    out.at[0] = c'"'
    out.at = put_number(out.at + 1, value)
    out.at[0] = c'"'
    out.at += 1
    return 0


cdef int put_known(Text *out, const char *name, int64_t value, bint known, bint quoted) noexcept nogil:
    put_literal(&out.at, name)
    if known:
        put_int64(out, value, quoted)
    else:
        put_literal(&out.at, b"null")
    return 0


cdef int put_escape(Text *out, uint8_t byte) noexcept nogil:
    """Of a character below 0x20, a quote or a backslash: two or six bytes."""
    cdef char letter = c"\0"
    if byte == c'"' or byte == c"\\":
        letter = <char>byte
    elif byte == c"\n":
        letter = c"n"
    elif byte == c"\t":
        letter = c"t"
    elif byte == c"\r":
        letter = c"r"
    elif byte == c"\b":
        letter = c"b"
    elif byte == c"\f":
        letter = c"f"
    out.at[0] = c"\\"
    if letter:
        out.at[1] = letter
        out.at += 2
        return 0
    memcpy(out.at + 1, <const char *>b"u00", 3)
    out.at[4] = c"1" if byte & 16 else c"0"
    out.at[5] = (<const char *>b"0123456789abcdef")[byte & 15]
    out.at += 6
    return 0


cdef inline int sequence(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Bytes of the character beyond ASCII at `p`; 0 where it is not UTF-8 (RFC 3629 section 4)."""
    cdef uint8_t lead = p[0], second
    cdef int size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    cdef int i
    if lead < 0xC2 or lead > 0xF4 or end - p < size:
        return 0
    second = p[1]
    if second & 0xC0 != 0x80:
        return 0
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F):
        return 0
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
        return 0
    for i in range(2, size):
        if p[i] & 0xC0 != 0x80:
            return 0
    return size


cdef int put_string(Text *out, const uint8_t *p, Py_ssize_t length, bint is_text) except -1:
    """A JSON string -> 1; 0, with nothing written that counts, where the bytes are not UTF-8.

    is_text: 0 also for control characters other than tab, CR, LF.
    """
    cdef const uint8_t *end = p + length
    cdef Py_ssize_t before = out.at - out.start
    cdef uint64_t flags
    cdef uint8_t byte
    cdef int size
    reserve(out, length)
    out.at[0] = c'"'
    out.at += 1
    while True:
        while end - p >= 8:
            put_word(out.at, p)
            flags = not_plain(crc_word(p))
            if flags:
                size = first_byte(flags)
                p += size
                out.at += size
                break
            p += 8
            out.at += 8
        if p == end:
            break
        byte = p[0]
        if byte < 0x20 or byte == c'"' or byte == c"\\":
            if is_text and byte < 0x20 and byte != c"\t" and byte != c"\n" and byte != c"\r":
                out.at = out.start + before
                return 0
            put_escape(out, byte)
            p += 1
            if out.end - out.at < (end - p) + SLACK:
                reserve(out, (end - p) + (end - p) // 4)
        elif byte < 0x7F or (byte == 0x7F and not is_text):
            out.at[0] = <char>byte
            out.at += 1
            p += 1
        else:
            while True:
                size = sequence(p, end)
                if size == 0 or (is_text and p[0] == 0xC2 and p[1] < 0xA0):
                    out.at = out.start + before
                    return 0
                memcpy(out.at, p, 2)
                if size > 2:
                    memcpy(out.at + size - 2, p + size - 2, 2)
                out.at += size
                p += size
                if p == end or p[0] < 0x80:
                    break
    out.at[0] = c'"'
    out.at += 1
    return 1


cdef int put_payload(Text *out, const uint8_t *data, Py_ssize_t size) except -1:
    """A key or value; size -1 is null."""
    if size < 0:
        reserve(out, 4)
        put_literal(&out.at, b"null")
        return 0
    if not put_string(out, data, size, True):
        reserve(out, (size // 3 + 1) * 4 + 16)
        put_literal(&out.at, b'{"base64":"')
        out.at = put_base64(out.at, data, size)
        put_literal(&out.at, b'"}')
    return 0
