/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/near.h"

#include <string.h>

bool
umi_codec_near_decode(umi_near_note *note, const void *data, size_t len)
{
    bool is_open, is_accept;

    if (len != sizeof(*note)) {
        return false;
    }
    memcpy(note, data, sizeof(*note));
    if (note->kind < UMI_NEAR_OPEN || note->kind > UMI_NEAR_WAKE) {
        return false;
    }
    is_open   = note->kind == UMI_NEAR_OPEN;
    is_accept = note->kind == UMI_NEAR_ACCEPT;
    return (note->ring != 0) == (note->kind != UMI_NEAR_WAKE) &&
           (is_open ? note->segment >= 0 && note->max >= 1 &&
                          note->max <= UMX_NEAR_MAX :
                      note->segment == 0 && note->max == 0) &&
           (note->flags & ~(is_accept ? UMI_NEAR_IS_ORDERED : 0u)) == 0;
}
