# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The two steps of the conversation that see every frame, compiled: cutting frames out of a chunk, and reading
a request header. Same meaning as `framer.Framer.cut` and `headers.maybe_request_header`, which stay the
specification; what is not the ordinary case is left to them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t


cdef inline uint32_t _be32(const unsigned char* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


def cut(bytes data, Py_ssize_t begin, object offset, object ts, object packet, object mark,
        Py_ssize_t max_frame, object frame_type, list found):
    """Append the whole frames in `data` from `begin` on, as frame_type(data, size, 0, ts, end, packet, offset).

    offset: of `data` in the stream. ts and packet are those of all of `data` where mark is None, else mark(at)
    gives those of a byte. Returns where the first frame that is not whole, or has no sane size, begins.
    """
    end_ts = ts
    cdef const unsigned char* bytes_ = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t base = offset
    cdef Py_ssize_t size
    cdef bytes frame
    while begin + 4 <= length:
        size = <int32_t>_be32(bytes_ + begin)
        if size < 0 or size > max_frame or begin + 4 + size > length:
            break
        frame = PyBytes_FromStringAndSize(<const char*>bytes_ + begin + 4, size)
        if mark is not None:
            ts = mark(begin)[0]
            end_ts, packet = mark(begin + 3 + size)
        found.append(frame_type(frame, size + 4, 0, ts, end_ts, packet, base + begin))
        begin += 4 + size
    return begin


def request_header(bytes frame, dict client_ids, const unsigned char[::1] first_flexible):
    """(api, version, correlation id, client id, body_at), or None for what is left to the specification.

    client_ids: bytes of the field -> its text, kept between calls. first_flexible: of each API the first version
    with header version 2 (255: none, 254: not an ordinary API).
    """
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(frame)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(frame)
    cdef Py_ssize_t body_at
    cdef int api, version, name
    if length < 10:
        return None
    api = (at[0] << 8) | at[1]
    version = (at[2] << 8) | at[3]
    if api >= first_flexible.shape[0] or first_flexible[api] == 254 or version > 127:
        return None
    name = (at[8] << 8) | at[9]
    if name == 0xFFFF:
        client_id = None
        body_at = 10
    else:
        body_at = 10 + name
        if name > 0x7FFF or body_at > length:
            return None
        key = PyBytes_FromStringAndSize(<const char*>at + 10, name)
        client_id = client_ids.get(key)
        if client_id is None:
            client_id = key.decode("utf-8", "surrogateescape")
            if len(client_ids) < 1000:
                client_ids[key] = client_id
    if version >= first_flexible[api]:
        # Header tags are empty in every client that is known; others take the long way.
        if body_at >= length or at[body_at] != 0:
            return None
        body_at += 1
    return api, version, <int32_t>_be32(at + 4), client_id, body_at
