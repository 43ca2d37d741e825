/* SPDX-License-Identifier: BSD-3-Clause */
/* item.h: single values of a column's buffers. Pure functions. Thread: any. */
#ifndef UMI_DATA_ITEM_H
#define UMI_DATA_ITEM_H

#include <umx/column.h>

#include <stdint.h>
#include <string.h>

/* Loops are compiled for one type and width: functions like this are called
 * with constants. */
#define UMI_ALWAYS_INLINE static inline __attribute__((always_inline))

/* Read a value of type `type`, at any address. */
#define UMI_LOAD(type, at)                     \
    (__extension__({                           \
        type value_;                           \
                                               \
        memcpy(&value_, (at), sizeof(value_)); \
        value_;                                \
    }))

UMI_ALWAYS_INLINE bool
umi_item_bit(const uint8_t *bits, size_t i)
{
    return (bits[i >> 3] >> (i & 7)) & 1;
}

/* Convert a float of 2 bytes to one of 8, which is exact. */
static inline double
umi_item_half(uint16_t half)
{
    int      exponent = (half >> 10) & 31;
    int      fraction = half & 1023;
    double   value;
    uint64_t bits;

    if (exponent == 0) {
        value = fraction * 0x1p-24;
        return (half >> 15) ? -value : value;
    }
    bits = (uint64_t)(half >> 15) << 63 |
           (uint64_t)(exponent == 31 ? 2047 : exponent - 15 + 1023) << 52 |
           (uint64_t)fraction << 42;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Read a float of 2, 4 or 8 bytes. */
UMI_ALWAYS_INLINE double
umi_item_float(const uint8_t *at, uint32_t width)
{
    return width == 8 ? UMI_LOAD(double, at) :
           width == 4 ? (double)UMI_LOAD(float, at) :
                        umi_item_half(UMI_LOAD(uint16_t, at));
}

/* Read an integer of up to 8 bytes: its 64 bits. */
UMI_ALWAYS_INLINE uint64_t
umi_item_integer(const uint8_t *at, umx_column_type type, uint32_t width)
{
    if (type == UMX_COLUMN_UINT) {
        return width == 8 ? UMI_LOAD(uint64_t, at) :
               width == 4 ? UMI_LOAD(uint32_t, at) :
               width == 2 ? UMI_LOAD(uint16_t, at) :
                            *at;
    }
    return (uint64_t)(width == 8 ? UMI_LOAD(int64_t, at) :
                      width == 4 ? UMI_LOAD(int32_t, at) :
                      width == 2 ? UMI_LOAD(int16_t, at) :
                                   UMI_LOAD(int8_t, at));
}

/* Read word `i`, the lowest first, of an integer of `width` bytes. */
UMI_ALWAYS_INLINE uint64_t
umi_item_word(const uint8_t *at, uint32_t width, unsigned i)
{
    unsigned count = width / 8;

    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
        i = count - 1 - i;
    }
    return UMI_LOAD(uint64_t, at + 8 * (size_t)i);
}

/* Find the bytes of string `i`. */
UMI_ALWAYS_INLINE const uint8_t *
umi_item_string(const umx_column *column, size_t i, size_t *len_p)
{
    uint64_t begin, end;

    if (column->width == 4) {
        const uint8_t *at = (const uint8_t *)column->values + 4 * i;

        begin = UMI_LOAD(uint32_t, at);
        end   = UMI_LOAD(uint32_t, at + 4);
    } else {
        const uint8_t *at = (const uint8_t *)column->values + 8 * i;

        begin = UMI_LOAD(uint64_t, at);
        end   = UMI_LOAD(uint64_t, at + 8);
    }
    *len_p = (size_t)(end - begin);
    return column->bytes + begin;
}

#endif
