/* SPDX-License-Identifier: BSD-3-Clause */
/* kinds_of_peers.h: what UCX keeps of the peers of an engine. For each kind of
 * address UCX's worker makes a configuration, of 200 KB; it has room for 255 of
 * them, and frees them with itself only. Here is the count of them: addresses
 * with equal digests (endpoint/address_kind.h) need the same configuration.
 * Thread: the worker's owner. */
#ifndef UMI_KINDS_OF_PEERS_H
#define UMI_KINDS_OF_PEERS_H

#include <stdbool.h>

#include "util/count.h"
#include "util/hash.h"
#include "util/list.h"

typedef struct umi_configuration {
    umi_node node; /* umi_engine.configurations */
    uint8_t  digest[UMI_SHA256_SIZE];
    unsigned num_links;  /* that use it */
    bool     is_trusted; /* a peer that uses it, or has, was no stranger */
} umi_configuration;

/* How many configurations of an engine there are. */
typedef struct umi_configuration_counts {
    unsigned all;
    unsigned strangers; /* of them, those that only strangers have used */
    unsigned in_use;    /* of these, those that a link uses */
} umi_configuration_counts;

/* NULL: none has that digest. */
umi_configuration *umi_configuration_find(const umi_list *configurations,
                                          const uint8_t  *digest);

/* Find the configuration of the digest, or add one, for a link to use. NULL:
 * out of memory. */
umi_configuration *umi_configuration_get(umi_list      *configurations,
                                         const uint8_t *digest);

/* A link uses it no more. UCX keeps it. */
static inline void
umi_configuration_put(umi_configuration *configuration)
{
    UMI_DECREMENT(configuration->num_links);
}

void umi_configurations_count(const umi_list           *configurations,
                              umi_configuration_counts *counts);

/* Free them: UCX's worker is gone. */
void umi_configurations_free(umi_list *configurations);

#endif
