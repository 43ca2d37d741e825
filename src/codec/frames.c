/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/frames.h"

#include <stdlib.h>

#include "util/bytes.h"

size_t
umi_varint_size(uint64_t value)
{
    size_t size = 1;

    while (value >>= 7) {
        size++;
    }
    return size;
}

uint8_t *
umi_varint_write(uint8_t *pos, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *pos++ = (uint8_t)(value | 0x80);
    }
    *pos++ = (uint8_t)value;
    return pos;
}

static uint64_t
read_varint(umi_reader *r)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = umi_read_u8(r);

        if (shift == 63 && byte > 1) {
            break; /* more than 64 bits */
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            r->is_bad |= (byte == 0 && shift != 0); /* not the shortest */
            return value;
        }
    }
    r->is_bad = true;
    return 0;
}

size_t
umi_frame_head_max(const umi_frame_limits *limits)
{
    return (size_t)UMI_VARINT_MAX * (2 + (size_t)limits->frames) +
           UMX_FRAMES_HEADER_MAX + UMI_FRAMES_PACKED_MAX;
}

void
umi_frame_head_fini(umi_frame_head *head)
{
    if (head->frames != head->own) {
        free(head->frames);
    }
}

static const char *
check_place(umi_frame_head *head, const umx_frame *frame)
{
    if (frame->place > UMI_FRAME_GOES_ON) {
        return "a frame in no known place";
    }
    if (frame->place == UMI_FRAME_IN_HEAD) {
        return NULL;
    }
    if (frame->len == 0) {
        return "a part for a frame without bytes";
    }
    if (frame->place == UMI_FRAME_GOES_ON && head->num_parts == 0) {
        return "a frame in a part that does not begin";
    }
    head->num_parts += (frame->place == UMI_FRAME_BEGINS);
    return NULL;
}

/* Decode one entry; `*packed_p` counts the bytes in the head. */
static const char *
decode_entry(umi_frame_head *head, umi_reader *r, uint64_t max,
             size_t *packed_p)
{
    uint64_t   entry = read_varint(r);
    umx_frame *frame = &head->frames[head->info.count++];

    if (r->is_bad) {
        return "a head of frames that is cut";
    }
    *frame = (umx_frame){.len       = entry >> 3,
                         .is_device = (entry & 1) != 0,
                         .place     = (entry >> 1) & 3};
    if (frame->len > max - head->info.len) {
        return "more bytes of frames than the limit";
    }
    head->info.len += frame->len;
    if (frame->place == UMI_FRAME_IN_HEAD) {
        *packed_p += frame->len;
    }
    return check_place(head, frame);
}

static const char *
decode_entries(umi_frame_head *head, umi_reader *r, size_t count, uint64_t max,
               size_t *packed_p)
{
    const char *why = NULL;

    if (count > UMI_FRAMES_INLINE) {
        head->frames = malloc(count * sizeof(*head->frames));
        if (head->frames == NULL) {
            head->frames = head->own;
            return "out of memory for a message";
        }
    }
    head->info.frames = head->frames;
    while (head->info.count < count && why == NULL) {
        why = decode_entry(head, r, max, packed_p);
    }
    return why;
}

const char *
umi_frame_head_decode(umi_frame_head *head, const void *data, size_t len,
                      const umi_frame_limits *limits)
{
    umi_reader  r;
    uint64_t    count, header_len;
    size_t      packed = 0;
    const char *why;

    *head        = (umi_frame_head){0};
    head->frames = head->own;
    umi_reader_init(&r, data, len);
    count      = read_varint(&r);
    header_len = read_varint(&r);
    /* Each entry has a byte at least: a count that lies costs nothing. */
    if (r.is_bad || count > (size_t)(r.end - r.pos)) {
        return "a head of frames that is cut";
    }
    if (count > limits->frames) {
        return "more frames than the limit";
    }
    if (header_len > UMX_FRAMES_HEADER_MAX) {
        return "a header of frames that is too long";
    }
    why = decode_entries(head, &r, (size_t)count, limits->bytes, &packed);
    if (why != NULL) {
        return why;
    }
    if (packed > UMI_FRAMES_PACKED_MAX ||
        (size_t)(r.end - r.pos) != header_len + packed) {
        return "frames whose sizes lie";
    }
    head->info.header     = r.pos;
    head->info.header_len = (size_t)header_len;
    head->packed          = r.pos + header_len;
    return NULL;
}

void
umi_frame_part(const umi_frame_head *head, size_t first, umi_part *part)
{
    const umx_frame *frame = head->frames;
    size_t           i     = first;

    while (frame[i].place != UMI_FRAME_BEGINS) {
        i++;
    }
    *part = (umi_part){.first = i, .count = 1, .len = frame[i].len};
    for (i++; i < head->info.count && frame[i].place != UMI_FRAME_BEGINS; i++) {
        if (frame[i].place == UMI_FRAME_GOES_ON) {
            part->count++;
            part->len += frame[i].len;
        }
    }
    part->end = i;
}
