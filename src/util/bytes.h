/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.h: little-endian numbers in byte buffers, and a cursor that cannot run
 * past its end: after the first short read every further one gives 0 and
 * is_bad stays set. Thread: any. */
#ifndef UMI_BYTES_H
#define UMI_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is little-endian; add byte swaps here"
#endif

typedef struct umi_reader {
    const uint8_t *pos;
    const uint8_t *end;
    bool           is_bad;
} umi_reader;

static inline void
umi_reader_init(umi_reader *r, const void *data, size_t len)
{
    r->pos    = (const uint8_t *)data;
    r->end    = r->pos + len;
    r->is_bad = false;
}

/* `len` bytes at the cursor, which moves on; NULL if they are not there. */
static inline const uint8_t *
umi_read_bytes(umi_reader *r, size_t len)
{
    const uint8_t *pos = r->pos;

    if ((size_t)(r->end - pos) < len) {
        r->is_bad = true;
        r->pos    = r->end;
        return NULL;
    }
    r->pos = pos + len;
    return pos;
}

#define UMI_DEFINE_READ(name, type)                              \
    static inline type name(umi_reader *r)                       \
    {                                                            \
        type           value = 0;                                \
        const uint8_t *pos   = umi_read_bytes(r, sizeof(value)); \
                                                                 \
        if (pos != NULL) {                                       \
            memcpy(&value, pos, sizeof(value));                  \
        }                                                        \
        return value;                                            \
    }
UMI_DEFINE_READ(umi_read_u8, uint8_t)
UMI_DEFINE_READ(umi_read_u16, uint16_t)
UMI_DEFINE_READ(umi_read_u32, uint32_t)
UMI_DEFINE_READ(umi_read_u64, uint64_t)
#undef UMI_DEFINE_READ

typedef struct umi_writer {
    uint8_t *pos;
    uint8_t *end;
    bool     is_full; /* something did not fit; nothing more is written */
} umi_writer;

static inline void
umi_writer_init(umi_writer *w, void *data, size_t len)
{
    w->pos     = (uint8_t *)data;
    w->end     = w->pos + len;
    w->is_full = false;
}

static inline void
umi_write_bytes(umi_writer *w, const void *data, size_t len)
{
    if (w->is_full || (size_t)(w->end - w->pos) < len) {
        w->is_full = true;
        return;
    }
    if (len != 0) {
        memcpy(w->pos, data, len);
        w->pos += len;
    }
}

#define UMI_DEFINE_WRITE(name, type)                   \
    static inline void name(umi_writer *w, type value) \
    {                                                  \
        umi_write_bytes(w, &value, sizeof(value));     \
    }
UMI_DEFINE_WRITE(umi_write_u8, uint8_t)
UMI_DEFINE_WRITE(umi_write_u16, uint16_t)
UMI_DEFINE_WRITE(umi_write_u32, uint32_t)
UMI_DEFINE_WRITE(umi_write_u64, uint64_t)
#undef UMI_DEFINE_WRITE

#endif
