/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c: waiting for numbers in this PE's memory. A wait of the heap's has a
 * wait on memory as its part, and ends as well when the communicator fails. */
#include <umx/wait.h>

#include "shmem/shmem.h"

typedef struct umi_shmem_wait {
    umi_node     node;  /* shmem->waits */
    umx_shmem   *shmem; /* held */
    umx_request *part;
    umx_status   status; /* to end with instead of the part's; or UMX_OK */
} umi_shmem_wait;

_Static_assert(sizeof(umi_shmem_wait) <= UMX_REQUEST_STATE_SIZE, "room");

static void
on_done(umx_request *part, umx_status status, void *arg)
{
    umx_request    *req   = arg;
    umi_shmem_wait *wait  = umx_request_state(req);
    umx_shmem      *shmem = wait->shmem;

    (void)part;
    umi_node_remove(&wait->node);
    wait->part = NULL;
    if (status != UMX_OK && wait->status != UMX_OK) {
        status = wait->status;
    } else if (status == UMX_ERR_STALE_KEY) {
        status = UMX_ERR_CLOSED;
    }
    umx_request_complete(req, status);
    umi_shmem_put(shmem);
}

static void
cancel(umx_request *req)
{
    umi_shmem_wait *wait = umx_request_state(req);

    if (wait->part != NULL) {
        (void)umx_request_cancel(wait->part);
    }
}

static const umx_request_class wait_class = {.name   = "wait_until",
                                             .cancel = cancel};

void
umi_shmem_waits_end(umx_shmem *shmem, umx_status status)
{
    size_t    left = umi_list_count(&shmem->waits);
    umi_node *node;

    while ((node = umi_list_turn(&shmem->waits, &left)) != NULL) {
        umi_shmem_wait *wait = umi_container_of(node, umi_shmem_wait, node);

        if (wait->status == UMX_OK) {
            wait->status = status;
            (void)umx_request_cancel(wait->part);
        }
    }
}

/* Post a wait for conditions, or for one, `until`. */
static umx_status
post_part(umx_request *req, const umx_condition *until,
          const umx_conditions *conditions)
{
    umi_shmem_wait *wait   = umx_request_state(req);
    umx_shmem      *shmem  = wait->shmem;
    umx_op_params   params = umx_layer_op_params(on_done, req);

    return (until != NULL) ?
               umx_memh_wait_until(shmem->joint.worker, shmem->memh, until,
                                   &params, &wait->part) :
               umx_memh_wait_until_many(shmem->joint.worker, shmem->memh,
                                        conditions, &params, &wait->part);
}

static umx_status
wait_for(umx_shmem *shmem, const umx_condition *until,
         const umx_conditions *conditions, const umx_op_params *op,
         umx_request **req_p)
{
    umx_status      status = umi_shmem_status(shmem);
    umi_shmem_wait *wait;
    umx_request    *req;

    if (status != UMX_OK) {
        return status;
    }
    req = umx_request_create(shmem->joint.worker, &wait_class, op);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    wait        = umx_request_state(req);
    wait->shmem = shmem;
    umi_node_init(&wait->node);
    status = post_part(req, until, conditions);
    if (status != UMX_INPROGRESS) {
        umx_request_discard(req);
        return status;
    }
    umi_shmem_hold(shmem);
    umi_list_append(&shmem->waits, &wait->node);
    if (shmem->joint.has_failed) { /* who would store may be gone */
        wait->status = UMX_ERR_RANK_FAILED;
        (void)umx_request_cancel(wait->part);
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umx_shmem_wait_until(umx_shmem *shmem, const umx_condition *until,
                     const umx_op_params *op, umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    umx_status status = umx_shmem_test(shmem, until);

    return (status == UMX_INPROGRESS) ?
               wait_for(shmem, until, NULL, op, req_p) :
               status;
}

umx_status
umx_shmem_wait_until_many(umx_shmem *shmem, const umx_conditions *conditions,
                          const umx_op_params *op, umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    return wait_for(shmem, NULL, conditions, op, req_p);
}

umx_status
umx_shmem_test(const umx_shmem *shmem, const umx_condition *until)
{
    umx_status status = umi_shmem_status(shmem);

    return (status == UMX_OK) ? umx_memh_test(shmem->memh, until) : status;
}
