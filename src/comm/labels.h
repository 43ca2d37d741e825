/* SPDX-License-Identifier: BSD-3-Clause */
/* labels.h: what has been derived from a communicator: each label, and how
 * often it has been used. Thread: the worker's, under its lock. */
#ifndef UMI_COMM_LABELS_H
#define UMI_COMM_LABELS_H

#include "comm/communicator.h"

struct umi_comm_label {
    umi_comm_label *next;
    uint64_t        label;
    uint64_t        count;
};

/* Find a label of the communicator, or make it. NULL: no memory. */
umi_comm_label *umi_comm_label_of(umx_comm *comm, uint64_t label);

/* Count the labels of the communicator. */
size_t umi_comm_count_labels(const umx_comm *comm);

/* Write the labels of the communicator as a goodbye has them. */
void umi_comm_write_labels(const umx_comm *comm, uint64_t *words);

/* Keep the labels in the goodbye of a rank that has left. False: no memory. */
bool umi_comm_rank_keep_labels(umi_comm_rank *rank, const void *labels,
                               size_t len);

/* Has a rank that has left the parent of `made` derived it, too? */
bool umi_comm_rank_has_derived(const umi_comm_rank *rank, const umx_comm *made);

void umi_comm_free_labels(umx_comm *comm);

#endif
