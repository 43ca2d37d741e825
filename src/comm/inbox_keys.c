/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/inbox_keys.h"

#include <stdlib.h>
#include <string.h>

static void
forget(umi_comm_known_key *known)
{
    if (known->rkey != NULL) {
        umx_rkey_destroy(known->rkey);
        free(known->key);
        *known = (umi_comm_known_key){0};
    }
}

void
umi_comm_keys_close(umi_comm_keys *keys)
{
    for (int i = 0; i < UMI_COMM_KEYS; i++) {
        forget(&keys->known[i]);
    }
}

umx_rkey *
umi_comm_keys_find(const umi_comm_keys *keys, const void *key, size_t len)
{
    for (int i = 0; i < UMI_COMM_KEYS; i++) {
        const umi_comm_known_key *known = &keys->known[i];

        if (known->rkey != NULL && known->len == len &&
            memcmp(known->key, key, len) == 0) {
            return known->rkey;
        }
    }
    return NULL;
}

umx_status
umi_comm_keys_open(umi_comm_keys *keys, umx_ep *ep, const void *key, size_t len,
                   umx_rkey **rkey_p)
{
    umi_comm_known_key *known = &keys->known[keys->next++ % UMI_COMM_KEYS];
    umx_status          status;

    forget(known);
    known->key = malloc(len);
    if (known->key == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memcpy(known->key, key, len);
    known->len = len;
    /* of the copy: the sender may change the other */
    status = umx_rkey_open(ep, known->key, len, &known->rkey);
    if (status != UMX_OK) {
        free(known->key);
        *known = (umi_comm_known_key){0};
        return status;
    }
    *rkey_p = known->rkey;
    return UMX_OK;
}
