/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes behind the first of a character; and the limits of the second, which
 * exclude long forms, surrogates, and what is above U+10FFFF. */
static int
read_first(uint8_t first, uint8_t *low, uint8_t *high)
{
    *low  = 0x80;
    *high = 0xBF;
    if (first >= 0xC2 && first <= 0xDF) {
        return 1;
    }
    if (first >= 0xE0 && first <= 0xEF) {
        *low  = (first == 0xE0) ? 0xA0 : *low;
        *high = (first == 0xED) ? 0x9F : *high;
        return 2;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        *low  = (first == 0xF0) ? 0x90 : *low;
        *high = (first == 0xF4) ? 0x8F : *high;
        return 3;
    }
    return -1;
}

bool
umi_utf8_is_valid(const void *data, size_t len)
{
    const uint8_t *pos = data, *end = pos + len;

    while (pos < end) {
        uint8_t low, high;
        int     more;

        if (*pos < 0x80) {
            pos++;
            continue;
        }
        more = read_first(*pos++, &low, &high);
        if (more < 0 || end - pos < more) {
            return false;
        }
        for (; more > 0; more--, pos++) {
            if (*pos < low || *pos > high) {
                return false;
            }
            low  = 0x80;
            high = 0xBF;
        }
    }
    return true;
}

void
umi_utf8_end(char *text)
{
    size_t  len   = strlen(text);
    size_t  begin = len;
    uint8_t low, high;

    do {
        if (begin == 0 || len - begin == 4) {
            return;
        }
        begin--;
    } while (((uint8_t)text[begin] & 0xC0) == 0x80);
    if ((uint8_t)text[begin] >= 0x80 &&
        read_first((uint8_t)text[begin], &low, &high) >
            (int)(len - begin - 1)) {
        text[begin] = '\0';
    }
}
