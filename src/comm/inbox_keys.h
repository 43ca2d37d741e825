/* SPDX-License-Identifier: BSD-3-Clause */
/* inbox_keys.h: memories of another rank whose keys came in cells, and that
 * stay open for the next message. Thread: the worker's owner. */
#ifndef UMI_COMM_INBOX_KEYS_H
#define UMI_COMM_INBOX_KEYS_H

#include <umx/rma.h>

enum {
    UMI_COMM_KEYS = 8
};

typedef struct umi_comm_known_key {
    umx_rkey *rkey; /* NULL: none */
    void     *key;
    size_t    len;
} umi_comm_known_key;

typedef struct umi_comm_keys {
    umi_comm_known_key known[UMI_COMM_KEYS];
    unsigned           next;
} umi_comm_keys;

/* Find a key among those that are open; NULL: it is not. */
umx_rkey *umi_comm_keys_find(const umi_comm_keys *keys, const void *key,
                             size_t len);

/* Open a key, of which a copy is made. `*rkey_p` lasts until another key takes
 * its place. */
umx_status umi_comm_keys_open(umi_comm_keys *keys, umx_ep *ep, const void *key,
                              size_t len, umx_rkey **rkey_p);

void umi_comm_keys_close(umi_comm_keys *keys);

#endif
