/* SPDX-License-Identifier: BSD-3-Clause */
/* derive.c: communicators of the same ranks, for libraries on top. A message
 * that comes before its communicator waits in the hub, so none is needed to
 * make one: its number follows from the parent's, from the label, and from how
 * often that has been used. */
#include <stdlib.h>

#include "comm/communicator.h"
#include "comm/dispatch.h"
#include "comm/labels.h"
#include "comm/member.h"

static uint64_t
derived_id(const umx_comm *comm, const umi_comm_label *label)
{
    uint64_t words[4] = {comm->id, UINT64_MAX, label->label, label->count};
    uint64_t id       = umx_tag_hash(words, sizeof(words));

    return (id != 0) ? id : 1;
}

umx_status
umx_comm_derive(umx_comm *comm, uint64_t label, umx_comm **comm_p)
{
    UMI_COMM_LOCK(comm);
    umx_status        status = umi_comm_status(comm);
    umi_comm_member **members;
    umx_comm         *made;
    umi_comm_label   *used;

    if (status != UMX_OK) {
        return status;
    }
    used    = umi_comm_label_of(comm, label);
    made    = umi_comm_new(comm->group, comm->name);
    members = malloc((size_t)comm->size * sizeof(*members));
    if (used == NULL || made == NULL || members == NULL) {
        free(members);
        if (made != NULL) {
            umi_comm_put(made);
        }
        return UMX_ERR_NO_MEMORY;
    }
    for (int i = 0; i < comm->size; i++) {
        members[i] = comm->ranks[i].member;
    }
    made->parent      = comm;
    made->label       = label;
    made->label_index = used->count;
    comm->num_derived++;
    umi_comm_set_ranks(made, derived_id(comm, used), comm->rank, comm->size,
                       members);
    used->count++;
    free(members);
    umi_comm_register(made);
    for (int i = 0; i < comm->size && comm->num_gone != 0; i++) {
        if (comm->ranks[i].is_gone &&
            !umi_comm_rank_has_derived(&comm->ranks[i], made)) {
            umi_comm_rank_is_absent(made, i);
        }
    }
    *comm_p = made;
    return UMX_OK;
}

umx_worker *
umx_comm_get_worker(const umx_comm *comm)
{
    return comm->group->dispatch->worker;
}

uint64_t
umx_comm_get_timeout(const umx_comm *comm)
{
    return comm->group->timeout_ns;
}

umx_status
umx_comm_get_ep(umx_comm *comm, int rank, umx_ep **ep_p)
{
    UMI_COMM_LOCK(comm);
    umx_status status = umi_comm_status(comm);

    if (status != UMX_OK) {
        return status;
    }
    if (rank < 0 || rank >= comm->size || rank == comm->rank) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return umi_comm_member_ep(comm->ranks[rank].member, ep_p);
}

umx_status
umx_comm_get_address(umx_comm *comm, int rank, const void **address_p,
                     size_t *len_p)
{
    UMI_COMM_LOCK(comm);
    umx_status status = umi_comm_status(comm);

    if (status != UMX_OK) {
        return status;
    }
    if (rank < 0 || rank >= comm->size) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    *address_p = comm->ranks[rank].member->address;
    *len_p     = comm->ranks[rank].member->address_len;
    return UMX_OK;
}
