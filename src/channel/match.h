/* SPDX-License-Identifier: BSD-3-Clause */
/* match.h: does a message match a receive? Untagged matches untagged only,
 * ANY matches all. */
#ifndef UMI_CHANNEL_MATCH_H
#define UMI_CHANNEL_MATCH_H

#include <umx/channel.h>

/* Beside umx_match_flags: the receive wants the message, not its bytes, unless
 * they fit into its buffer. */
enum {
    UMI_MATCH_WANT_MESSAGE = 1u << 16, /* the message, not its bytes */
    UMI_MATCH_OF_MESSAGE = 1u << 17 /* the bytes of a message that was taken */
};

static inline bool
umi_match(uint64_t tag, uint64_t mask, uint32_t flags,
          const umx_recv_info *info)
{
    if (flags & UMX_MATCH_ANY) {
        return true;
    }
    if (info->is_untagged || (flags & UMX_MATCH_UNTAGGED)) {
        return info->is_untagged && (flags & UMX_MATCH_UNTAGGED);
    }
    return ((info->tag ^ tag) & mask) == 0;
}

#endif
