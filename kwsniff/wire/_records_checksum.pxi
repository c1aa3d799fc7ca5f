# CRC-32C (record batches) and CRC-32 (message sets) of bytes in memory, without a Python call or a copy.
#
# In: a pointer and a length. Out: the checksum. A processor with an instruction for CRC-32C is asked for it,
# three streams at a time (it takes three cycles but can begin one in each); everything else goes by tables,
# eight bytes a step (M. Kounavis, F. Berry: A Systematic Approach to Building High Performance,
# Software-based, CRC Generators, 2005). `prepare_checksums` comes first, once.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static uint32_t crc_tables[2][8][256];     /* CRC-32, CRC-32C: a byte, and seven zero bytes more */
    static uint32_t crc_shift[4][256];         /* CRC-32C over CRC_STRIDE zero bytes, by byte of the state */
    static int crc_by_instruction = 0;
    #define CRC_STRIDE 512

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #define CRC_X86 1
    #elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    #define CRC_ARM 1
    #endif

    static inline uint64_t crc_word(const unsigned char *p) {
        uint64_t word = 0;
        int i;
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        for (i = 7; i >= 0; i--) word = word << 8 | p[i];
    #else
        (void)i;
        memcpy(&word, p, 8);
    #endif
        return word;
    }

    static uint32_t crc_by_table(const uint32_t t[8][256], const unsigned char *p, size_t size) {
        uint32_t crc = 0xffffffffu;
        for (; size >= 8; p += 8, size -= 8) {
            uint64_t word = crc_word(p) ^ crc;
            crc = t[7][word & 255] ^ t[6][word >> 8 & 255] ^ t[5][word >> 16 & 255] ^ t[4][word >> 24 & 255]
                ^ t[3][word >> 32 & 255] ^ t[2][word >> 40 & 255] ^ t[1][word >> 48 & 255] ^ t[0][word >> 56];
        }
        while (size--) crc = crc >> 8 ^ t[0][(crc ^ *p++) & 255];
        return ~crc;
    }

    static inline uint32_t crc_over_stride(uint32_t crc) {
        return crc_shift[0][crc & 255] ^ crc_shift[1][crc >> 8 & 255] ^ crc_shift[2][crc >> 16 & 255]
             ^ crc_shift[3][crc >> 24];
    }

    #if defined(CRC_X86) || defined(CRC_ARM)
    #ifdef CRC_X86
    #define CRC_TARGET __attribute__((target("sse4.2")))
    #define CRC_8(crc, word) ((uint32_t)__builtin_ia32_crc32di((crc), (word)))
    #define CRC_1(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
    #else
    #define CRC_TARGET
    #define CRC_8(crc, word) __crc32cd((crc), (word))
    #define CRC_1(crc, byte) __crc32cb((crc), (byte))
    #endif
    CRC_TARGET static uint32_t crc32c_by_instruction(const unsigned char *p, size_t size) {
        uint32_t crc = 0xffffffffu;
        for (; size >= 3 * CRC_STRIDE; p += 2 * CRC_STRIDE, size -= 3 * CRC_STRIDE) {
            uint32_t second = 0, third = 0;
            const unsigned char *end = p + CRC_STRIDE;
            for (; p < end; p += 8) {
                crc = CRC_8(crc, crc_word(p));
                second = CRC_8(second, crc_word(p + CRC_STRIDE));
                third = CRC_8(third, crc_word(p + 2 * CRC_STRIDE));
            }
            crc = crc_over_stride(crc_over_stride(crc) ^ second) ^ third;
        }
        for (; size >= 8; p += 8, size -= 8) crc = CRC_8(crc, crc_word(p));
        while (size--) crc = CRC_1(crc, *p++);
        return ~crc;
    }
    #else
    #define crc32c_by_instruction(p, size) 0
    #endif

    static void prepare_checksums(void) {
        static const uint32_t polynomials[2] = {0xedb88320u, 0x82f63b78u};
        uint32_t i, k, crc;
        int which, bit;
        for (which = 0; which < 2; which++)
            for (i = 0; i < 256; i++) {
                for (crc = i, bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomials[which] : 0);
                crc_tables[which][0][i] = crc;
            }
        for (which = 0; which < 2; which++)
            for (i = 0; i < 256; i++)
                for (crc = crc_tables[which][0][i], k = 1; k < 8; k++)
                    crc_tables[which][k][i] = crc = crc >> 8 ^ crc_tables[which][0][crc & 255];
        for (bit = 0; bit < 32; bit++) {
            for (crc = 1u << bit, k = 0; k < CRC_STRIDE; k++) crc = crc >> 8 ^ crc_tables[1][0][crc & 255];
            for (i = 0; i < 256; i++)
                if (i >> (bit & 7) & 1) crc_shift[bit >> 3][i] ^= crc;
        }
    #ifdef CRC_X86
        __builtin_cpu_init();
        crc_by_instruction = __builtin_cpu_supports("sse4.2") != 0;
    #elif defined(CRC_ARM)
        crc_by_instruction = 1;
    #endif
    }

    static inline uint32_t checksum_crc32(const unsigned char *p, size_t size) {
        return crc_by_table((const uint32_t (*)[256])crc_tables[0], p, size);
    }

    static inline uint32_t checksum_by_table(const unsigned char *p, size_t size) {
        return crc_by_table((const uint32_t (*)[256])crc_tables[1], p, size);
    }

    static inline uint32_t checksum_crc32c(const unsigned char *p, size_t size) {
        return crc_by_instruction ? crc32c_by_instruction(p, size) : checksum_by_table(p, size);
    }
    """
    void prepare_checksums() noexcept nogil
    uint64_t crc_word(const unsigned char *data) noexcept nogil
    unsigned int checksum_crc32(const unsigned char *data, size_t size) noexcept nogil
    unsigned int checksum_crc32c(const unsigned char *data, size_t size) noexcept nogil
    unsigned int checksum_by_table(const unsigned char *data, size_t size) noexcept nogil
