# Included by _scan.pyx: numbers in bytes, and where an IP header begins (some of `frames.FIND_IP`).


cdef inline uint16_t be16(Bytes at) noexcept nogil:
    return <uint16_t>(at[0] << 8 | at[1])


cdef inline uint32_t be32(Bytes at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint32_t le32(Bytes at) noexcept nogil:
    return <uint32_t>at[3] << 24 | <uint32_t>at[2] << 16 | <uint32_t>at[1] << 8 | at[0]


cdef inline uint32_t u32(Bytes at, bint big) noexcept nogil:
    return be32(at) if big else le32(at)


cdef Py_ssize_t find_ip(uint32_t linktype, Bytes data, Py_ssize_t length, int* version) noexcept nogil:
    """Where the IP header begins, -1: not found here. Some of `frames.FIND_IP`."""
    cdef Py_ssize_t at
    cdef uint16_t kind
    cdef uint32_t family
    if linktype == 1 or linktype == 113 or linktype == 276:
        if length < 20:
            return -1
        if linktype == 1:
            kind, at = be16(data + 12), 14
        elif linktype == 113:
            kind, at = be16(data + 14), 16
        else:
            kind, at = be16(data), 20
        while kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200:
            if length < at + 4:
                return -1
            kind = be16(data + at + 2)
            at += 4
        version[0] = IPV4 if kind == 0x0800 else IPV6 if kind == 0x86DD else 0
        return at if version[0] else -1
    if linktype == 0 or linktype == 108:
        if length < 4:
            return -1
        family = le32(data)
        if family > 0xFFFF:
            family = be32(data)
        version[0] = IPV4 if family == 2 else IPV6 if family in (10, 24, 28, 30) else 0
        return 4 if version[0] else -1
    if linktype == 12 or linktype == 14 or linktype == 101 or linktype == 228 or linktype == 229:
        if length < 1:
            return -1
        version[0] = data[0] >> 4
        return 0 if version[0] == IPV4 or version[0] == IPV6 else -1
    return -1
