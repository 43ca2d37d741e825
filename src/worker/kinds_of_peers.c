/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/kinds_of_peers.h"

#include <stdlib.h>
#include <string.h>

umi_configuration *
umi_configuration_find(const umi_list *configurations, const uint8_t *digest)
{
    UMI_LIST_FOREACH(node, configurations) {
        umi_configuration *each = umi_container_of(node, umi_configuration,
                                                   node);

        if (memcmp(each->digest, digest, UMI_SHA256_SIZE) == 0) {
            return each;
        }
    }
    return NULL;
}

umi_configuration *
umi_configuration_get(umi_list *configurations, const uint8_t *digest)
{
    umi_configuration *found = umi_configuration_find(configurations, digest);

    if (found == NULL) {
        found = calloc(1, sizeof(*found));
        if (found == NULL) {
            return NULL;
        }
        memcpy(found->digest, digest, UMI_SHA256_SIZE);
        umi_list_append(configurations, &found->node);
    }
    found->num_links++;
    return found;
}

void
umi_configurations_count(const umi_list           *configurations,
                         umi_configuration_counts *counts)
{
    memset(counts, 0, sizeof(*counts));
    UMI_LIST_FOREACH(node, configurations) {
        const umi_configuration *each = umi_container_of(
            node, umi_configuration, node);

        counts->all++;
        counts->strangers += !each->is_trusted;
        counts->in_use += !each->is_trusted && each->num_links > 0;
    }
}

void
umi_configurations_free(umi_list *configurations)
{
    umi_node *node;

    while ((node = umi_list_pop(configurations)) != NULL) {
        free(umi_container_of(node, umi_configuration, node));
    }
}
