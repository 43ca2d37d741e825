/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/copy.h"

#include <stdint.h>

#if defined(__x86_64__)
#include <emmintrin.h>

enum {
    LINE = 64 /* bytes */
};

static void
copy_line(char *to, const char *from)
{
    const __m128i *in  = (const __m128i *)(const void *)from;
    __m128i       *out = (__m128i *)(void *)to;
    __m128i        a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    __m128i        c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);

    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
}

void
umi_copy_streaming(void *to, const void *from, size_t len)
{
    char       *out  = to;
    const char *in   = from;
    size_t      head = (size_t)(-(uintptr_t)to % LINE);

    memcpy(out, in, head);
    out += head;
    in += head;
    len -= head;
    for (; len >= LINE; len -= LINE) {
        copy_line(out, in);
        out += LINE;
        in += LINE;
    }
    _mm_sfence(); /* such stores are in no order with others */
    memcpy(out, in, len);
}

#else

void
umi_copy_streaming(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}

#endif
