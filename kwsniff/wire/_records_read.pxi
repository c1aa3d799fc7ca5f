# Bytes -> the fields of headers, records and messages, as batch.py and messageset.py read them.
#
# In: pointers between which to stay. Out: structs whose keys and values point into the input. 0 or NULL for
# whatever those two would raise an error for.

cdef extern from *:
    """
    static inline uint64_t load64(const unsigned char *p) {
        return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 | (uint64_t)p[3] << 32
             | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 | (uint64_t)p[6] << 8 | p[7];
    }
    static inline uint32_t load32(const unsigned char *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static inline uint16_t load16(const unsigned char *p) { return (uint16_t)(p[0] << 8 | p[1]); }
    static inline int64_t wrapped(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
    """
    uint64_t load64(const uint8_t *p) noexcept nogil
    uint32_t load32(const uint8_t *p) noexcept nogil
    uint16_t load16(const uint8_t *p) noexcept nogil
    int64_t wrapped(int64_t a, int64_t b) noexcept nogil


cdef enum:
    HEADER_SIZE = 61  # of a batch
    BEHIND_CRC = 21
    LEAST_BATCH = 49  # batchLength
    LEAST_RECORD = 6
    LEAST_SIZED_RECORD = 7
    MAX_HEADERS = 100_000
    CODEC = 0x07
    APPEND = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    HORIZON = 0x40


cdef enum Hop:
    AT_END
    AT_ENTRY
    AT_CUT  # an entry that the field ends in
    AT_ODDS


ctypedef struct Sized:
    const uint8_t *data
    Py_ssize_t size  # -1: null


ctypedef struct Record:
    int64_t timestamp  # delta
    int64_t offset  # delta
    Sized key
    Sized value
    const uint8_t *headers
    int64_t header_count
    uint8_t attributes


ctypedef struct Message:
    int64_t offset
    int64_t timestamp
    Sized key
    Sized value
    uint8_t attributes
    bint valid


cdef Hop next_entry(const uint8_t *at, const uint8_t *end, Py_ssize_t *size) noexcept nogil:
    """What stands at `at`: entries.Scan.bounds. size: bytes of the whole entry."""
    cdef Py_ssize_t left = end - at
    cdef int64_t length, least = 5
    cdef bint known = False
    if left == 0:
        return AT_END
    if left < 12:
        return AT_CUT
    length = <int32_t>load32(at + 8)
    if left > 16:
        known = at[16] <= 2
        if known:
            least = LEAST_BATCH if at[16] == 2 else 22 if at[16] == 1 else 14
    if length < least:
        return AT_ODDS
    if left <= 16 or 12 + length > left:
        return AT_CUT
    size[0] = 12 + length
    return AT_ENTRY if known else AT_ODDS


cdef inline bint has_valid_crc(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    if at[16] == 2:
        return checksum_crc32c(at + BEHIND_CRC, size - BEHIND_CRC) == load32(at + 17)
    return checksum_crc32(at + 16, size - 16) == load32(at + 12)


cdef const uint8_t *long_varint(
    const uint8_t *at, const uint8_t *stop, int most, int64_t *value
) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int shift = 0
    if stop - at > most:
        stop = at + most
    while at < stop:
        bits |= <uint64_t>(at[0] & 0x7F) << shift
        shift += 7
        at += 1
        if (at - 1)[0] < 0x80:
            if most == 5:
                bits = <uint32_t>bits
            value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            return at
    return NULL


cdef inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *stop, int64_t *value) noexcept nogil:
    """An int32; NULL where it is none or runs over `stop`."""
    if at < stop and at[0] < 0x80:
        value[0] = (at[0] >> 1) ^ -<int64_t>(at[0] & 1)
        return at + 1
    return long_varint(at, stop, 5, value)


cdef inline const uint8_t *read_varlong(
    const uint8_t *at, const uint8_t *stop, int64_t *value
) noexcept nogil:
    if at < stop and at[0] < 0x80:
        value[0] = (at[0] >> 1) ^ -<int64_t>(at[0] & 1)
        return at + 1
    return long_varint(at, stop, 10, value)


cdef inline const uint8_t *read_sized(const uint8_t *at, const uint8_t *stop, Sized *found) noexcept nogil:
    cdef int64_t size
    at = read_varint(at, stop, &size)
    if at == NULL or size < -1 or size > stop - at:
        return NULL
    found.data = at
    found.size = size
    return at + size if size > 0 else at


cdef const uint8_t *read_record(const uint8_t *at, const uint8_t *end, Record *found) noexcept nogil:
    """The position behind it, where its headers have to end that are read by `read_header`."""
    cdef int64_t length
    cdef const uint8_t *stop
    at = read_varint(at, end, &length)
    if at == NULL or length < LEAST_RECORD or length > end - at:
        return NULL
    stop = at + length
    found.attributes = at[0]
    at = read_varlong(at + 1, stop, &found.timestamp)
    if at == NULL:
        return NULL
    at = read_varint(at, stop, &found.offset)
    if at == NULL:
        return NULL
    at = read_sized(at, stop, &found.key)
    if at == NULL:
        return NULL
    at = read_sized(at, stop, &found.value)
    if at == NULL:
        return NULL
    at = read_varint(at, stop, &found.header_count)
    if at == NULL or not 0 <= found.header_count <= (stop - at) // 2 or found.header_count > MAX_HEADERS:
        return NULL
    found.headers = at
    return stop if found.header_count or at == stop else NULL


cdef inline const uint8_t *read_header(
    const uint8_t *at, const uint8_t *stop, Sized *key, Sized *value
) noexcept nogil:
    at = read_sized(at, stop, key)
    if at == NULL or key.size < 0:
        return NULL
    return read_sized(at, stop, value)


cdef bint read_message(const uint8_t *at, Py_ssize_t size, Message *found) noexcept nogil:
    """The message of magic 0 or 1 that an entry is. Without timestamp: 0."""
    cdef const uint8_t *end = at + size
    cdef int32_t length
    found.offset = <int64_t>load64(at)
    found.attributes = at[17]
    found.timestamp = <int64_t>load64(at + 18) if at[16] else 0
    found.valid = has_valid_crc(at, size)
    at += 26 if at[16] else 18
    length = <int32_t>load32(at)
    at += 4
    if length < -1 or length > end - 4 - at:
        return False
    found.key = Sized(at, length)
    at += length if length > 0 else 0
    length = <int32_t>load32(at)
    at += 4
    if length < -1 or length > end - at:
        return False
    found.value = Sized(at, length)
    return at + (length if length > 0 else 0) == end


cdef Py_ssize_t inner_message(
    const uint8_t *at, const uint8_t *end, uint8_t magic, Message *found
) noexcept nogil:
    """Its size; 0 where it is none, or of another magic, or compressed itself, or its CRC wrong."""
    cdef Py_ssize_t left = end - at
    cdef int64_t size
    if left < 18 or at[16] != magic:
        return 0
    size = <int32_t>load32(at + 8)
    if size < (22 if magic else 14) or size > left - 12:
        return 0
    if not read_message(at, 12 + size, found) or not found.valid or found.attributes & CODEC:
        return 0
    return 12 + size


cdef bint shift_of(
    const uint8_t *at, const uint8_t *end, uint8_t magic, int64_t offset, int64_t *shift
) noexcept nogil:
    """What is to be added to the offsets inside of a wrapper at `offset`: messageset._shift."""
    cdef int64_t last = 0, size
    shift[0] = 0
    if magic == 0 or offset == 0:
        return True
    while end - at >= 12:
        size = <int32_t>load32(at + 8)
        if size < 0 or size > end - at - 12:
            break
        last = <int64_t>load64(at)
        at += 12 + size
    shift[0] = <int64_t>(<uint64_t>offset - <uint64_t>last)
    return offset >= last
