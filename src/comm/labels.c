/* SPDX-License-Identifier: BSD-3-Clause */
/* labels.c: what has been derived from a communicator, by this rank and by
 * ranks that have left. */
#include "comm/labels.h"

#include <stdlib.h>
#include <string.h>

umi_comm_label *
umi_comm_label_of(umx_comm *comm, uint64_t label)
{
    umi_comm_label *found = comm->labels;

    while (found != NULL && found->label != label) {
        found = found->next;
    }
    if (found == NULL) {
        found = calloc(1, sizeof(*found));
        if (found != NULL) {
            found->label = label;
            found->next  = comm->labels;
            comm->labels = found;
        }
    }
    return found;
}

void
umi_comm_free_labels(umx_comm *comm)
{
    while (comm->labels != NULL) {
        umi_comm_label *label = comm->labels;

        comm->labels = label->next;
        free(label);
    }
}

size_t
umi_comm_count_labels(const umx_comm *comm)
{
    size_t count = 0;

    for (const umi_comm_label *label = comm->labels; label != NULL;
         label                       = label->next) {
        count++;
    }
    return count;
}

void
umi_comm_write_labels(const umx_comm *comm, uint64_t *words)
{
    for (const umi_comm_label *label = comm->labels; label != NULL;
         label                       = label->next) {
        *words++ = label->label;
        *words++ = label->count;
    }
}

bool
umi_comm_rank_has_derived(const umi_comm_rank *rank, const umx_comm *made)
{
    for (size_t i = 0; i < rank->num_labels; i++) {
        if (rank->labels[2 * i] == made->label) {
            return rank->labels[2 * i + 1] > made->label_index;
        }
    }
    return false;
}

bool
umi_comm_rank_keep_labels(umi_comm_rank *rank, const void *labels, size_t len)
{
    if (len < UMI_COMM_LABEL_SIZE) {
        return true;
    }
    rank->labels = malloc(len);
    if (rank->labels == NULL) {
        return false;
    }
    memcpy(rank->labels, labels, len);
    rank->num_labels = len / UMI_COMM_LABEL_SIZE;
    return true;
}
