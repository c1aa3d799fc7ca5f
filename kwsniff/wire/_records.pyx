# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, nonecheck=False, embedsignature=True
"""Records fields compiled: batches and message sets to dicts, to a summary, and straight to JSON text.

In: the bytes of a field. Out: the same as records.py, batch.py, messageset.py and, for JSON,
output/recordset.py with msgspec give. Whatever is wrong, and the few things that only those can do, is left
to them: `None`, no records, or a call of `other`. No diagnostics here. Every read is between two pointers;
memory grows with what has been read, never with a count that the input claims.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kwsniff.errors import DecodeError

include "_records_checksum.pxi"
include "_records_read.pxi"
include "_records_text.pxi"
include "_records_json.pxi"

cdef extern from *:
    """
    /* The cycle collector need not look again and again at millions of records that refer to nothing but
       numbers, bytes and an empty list: a third of the time. Up to 3.13 a dict comes back to it when a
       container is put in. */
    #if PY_VERSION_HEX < 0x030E0000
    #define leave_alone(container) PyObject_GC_UnTrack(container)
    #else
    #define leave_alone(container) ((void)0)
    #endif
    """
    void leave_alone(object container)

prepare_checksums()

cdef const char **CODECS = [b"none", b"gzip", b"snappy", b"lz4", b"zstd", b"5", b"6", b"7"]
cdef tuple _codec_names = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")


def crc32c(const uint8_t[::1] data not None):
    """The CRC-32C of bytes."""
    return checksum_crc32c(&data[0], data.shape[0]) if data.shape[0] else 0


def crc32(const uint8_t[::1] data not None):
    """The CRC-32 of bytes."""
    return checksum_crc32(&data[0], data.shape[0]) if data.shape[0] else 0


def crc32c_by_table(const uint8_t[::1] data not None):
    """The same, on a processor that has no instruction for it; for tests."""
    return checksum_by_table(&data[0], data.shape[0]) if data.shape[0] else 0


# Dicts


cdef enum:
    BYTES_AT_ONCE = 1 << 16  # that become dicts in one call: 2 of them may become 200
    RECORDS_AT_ONCE = 1 << 10


cdef inline object bytes_of(Sized found):
    if found.size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>found.data, found.size)


cdef list headers_of(const uint8_t *at, const uint8_t *stop, int64_t count):
    """None where they are not all there."""
    cdef Sized key, value
    cdef int64_t i
    cdef list headers = []
    for i in range(count):
        at = read_header(at, stop, &key, &value)
        if at == NULL:
            return None
        name = PyUnicode_DecodeUTF8(<const char *>key.data, key.size, "surrogateescape")
        headers.append({"key": name, "value": bytes_of(value)})
    return headers if at == stop else None


def records(bytes data not None, Py_ssize_t at, Py_ssize_t end, Py_ssize_t most,
            int64_t base, int64_t first, append):
    """(some of the next `most` records of magic 2, where they end): batch.py makes them one by one.

    base, first: offset and timestamp that the deltas count from; append: the broker's timestamp, or None.
    No records: what stands there is not for this function to judge.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *place
    cdef const uint8_t *stop
    cdef const uint8_t *enough
    cdef const uint8_t *behind
    cdef Record found
    cdef list shown = []
    cdef list headers
    if not 0 <= at <= end <= PyBytes_GET_SIZE(data):
        return shown, at
    place, stop = start + at, start + end
    enough = place + min(end - at, <Py_ssize_t>BYTES_AT_ONCE)
    most = min(most, <Py_ssize_t>RECORDS_AT_ONCE)
    while place < enough and len(shown) < most:
        behind = read_record(place, stop, &found)
        if behind == NULL:
            break
        headers = headers_of(found.headers, behind, found.header_count) if found.header_count else []
        if headers is None:
            break
        record = {
            "offset": wrapped(base, found.offset),
            "timestamp": wrapped(first, found.timestamp) if append is None else append,
            "key": bytes_of(found.key),
            "value": bytes_of(found.value),
            "headers": headers,
        }
        if found.attributes:
            record["attributes"] = found.attributes
        if not found.header_count:
            leave_alone(record)
            leave_alone(headers)
        shown.append(record)
        place = behind
    return shown, place - start


def messages(bytes data not None, Py_ssize_t at, int magic, int64_t shift, append):
    """(some of the next messages of a decompressed message set, where they end), as `records`.

    shift: added to the offsets. Nested sets and messages with a wrong CRC are left to messageset.py, too.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *stop = start + PyBytes_GET_SIZE(data)
    cdef const uint8_t *place
    cdef const uint8_t *enough
    cdef Message found
    cdef Py_ssize_t size
    cdef list shown = []
    if not 0 <= at <= PyBytes_GET_SIZE(data) or not 0 <= magic <= 1:
        return shown, at
    place = start + at
    enough = place + min(stop - place, <Py_ssize_t>BYTES_AT_ONCE)
    while place < enough and len(shown) < RECORDS_AT_ONCE:
        size = inner_message(place, stop, magic, &found)
        if size == 0:
            break
        timestamp = append
        if timestamp is None and magic:
            timestamp = found.timestamp
        shown.append({
            "offset": wrapped(found.offset, shift),
            "timestamp": timestamp,
            "key": bytes_of(found.key),
            "value": bytes_of(found.value),
            "headers": [],
        })
        place += size
    return shown, place - start


# Summaries


ctypedef struct Counts:
    int64_t batches
    int64_t records  # -1: not known
    int64_t wrong_crcs
    int64_t base
    int64_t last
    bint base_known
    bint last_known
    int codecs
    int magics
    uint8_t codec[8]
    uint8_t magic[3]


cdef inline int note(uint8_t *seen, int count, uint8_t value) noexcept nogil:
    cdef int i
    for i in range(count):
        if seen[i] == value:
            return count
    seen[count] = value
    return count + 1


cdef bint count_batch(Counts *found, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef int32_t count = <int32_t>load32(at + 57)
    cdef uint8_t codec = at[22] & CODEC
    if count < 0 or (codec == 0 and <int64_t>count * LEAST_SIZED_RECORD > size - HEADER_SIZE):
        return False
    if found.records >= 0:
        found.records += count
    if found.batches == 0:
        found.base, found.base_known = <int64_t>load64(at), True
    found.last = wrapped(<int64_t>load64(at), <int32_t>load32(at + 23))
    found.last_known = True
    found.codecs = note(found.codec, found.codecs, codec)
    return True


cdef void count_message(Counts *found, const uint8_t *at) noexcept nogil:
    cdef uint8_t codec = at[17] & CODEC
    cdef int64_t offset = <int64_t>load64(at)
    if found.batches == 0:
        found.base, found.base_known = offset, codec == 0
    found.last, found.last_known = offset, codec == 0 or offset != 0
    if codec:
        found.records = -1
    elif found.records >= 0:
        found.records += 1
    found.codecs = note(found.codec, found.codecs, codec)


cdef bint count_entries(Counts *found, bytes data, bint check_crc, bint allow_partial) noexcept:
    """False for what records.summarise has something to say about."""
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(data)
    cdef Py_ssize_t size = 0
    cdef Hop hop
    memset(found, 0, sizeof(Counts))
    while True:
        hop = next_entry(at, end, &size)
        if hop != AT_ENTRY:
            return hop == AT_END or (hop == AT_CUT and allow_partial)
        if at[16] != 2:
            count_message(found, at)
        elif not count_batch(found, at, size):
            return False
        found.magics = note(found.magic, found.magics, at[16])
        if check_crc and not has_valid_crc(at, size):
            found.wrong_crcs += 1
        found.batches += 1
        at += size


def summary(bytes data not None, bint check_crc, bint allow_partial):
    """The summary of records.summarise when it has no errors, else None."""
    cdef Counts found
    cdef int i
    if not count_entries(&found, data, check_crc, allow_partial):
        return None
    return {
        "batches": found.batches,
        "records": found.records if found.records >= 0 else None,
        "codecs": [_codec_names[found.codec[i]] for i in range(found.codecs)],
        "magics": [found.magic[i] for i in range(found.magics)],
        "baseOffset": found.base if found.base_known else None,
        "lastOffset": found.last if found.last_known else None,
        "crcErrors": found.wrong_crcs if check_crc else None,
    }


def summary_json(bytes data not None, bint allow_partial, bint quoted):
    """The summary as JSON text; None where there is something to be said, wrong CRCs too.

    quoted: offsets are strings, as --int64-as-string has them.
    """
    cdef Counts found
    cdef char room[512]
    cdef Text out
    cdef int i
    if not count_entries(&found, data, True, allow_partial) or found.wrong_crcs:
        return None
    out.start, out.at, out.end = room, room, room + sizeof(room)
    put_known(&out, b'{"batches":', found.batches, True, False)
    put_known(&out, b',"records":', found.records, found.records >= 0, False)
    put_literal(&out.at, b',"codecs":[')
    for i in range(found.codecs):
        put_literal(&out.at, b',"' if i else b'"')
        put_literal(&out.at, CODECS[found.codec[i]])
        put_literal(&out.at, b'"')
    put_literal(&out.at, b'],"magics":[')
    for i in range(found.magics):
        put_known(&out, b"," if i else b"", found.magic[i], True, False)
    put_known(&out, b'],"baseOffset":', found.base, found.base_known, quoted)
    put_known(&out, b',"lastOffset":', found.last, found.last_known, quoted)
    put_literal(&out.at, b',"crcErrors":0}')
    return PyBytes_FromStringAndSize(room, out.at - room)
