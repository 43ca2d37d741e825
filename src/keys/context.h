/* SPDX-License-Identifier: BSD-3-Clause */
/* context.h: a UCX context, shared by its workers. Thread: any. */
#ifndef UMI_CONTEXT_H
#define UMI_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <ucp/api/ucp.h>
#include <umx/context.h>

#include "host/config.h"
#include "host/fork.h"
#include "host/port_range.h"
#include "host/routes.h"
#include "util/list.h"
#include "util/refcnt.h"
#include "util/slots.h"

/* A context of UCX. It has the network devices that were up when it was made.
 * Engines and registered memories hold the one that they are of. */
typedef struct umi_ucx {
    ucp_context_h   handle;
    umi_shared_refs refs;
    umi_interfaces  interfaces; /* that were up */
} umi_ucx;

struct umx_context {
    pthread_mutex_t ucx_lock;
    umi_ucx        *ucx;        /* of all that is new; ucx_lock; held */
    ucp_config_t   *ucx_config; /* for another */
    umi_shared_refs refs;
    unsigned        generation; /* umi_fork_generation() at creation */
    umx_config      config;     /* config.token leads to `token` */
    uint8_t         token[UMI_TOKEN_MAX];
    bool            has_rma;     /* UCX's put and get may be used */
    bool            has_devices; /* the program has chosen UCX's devices */
    uint32_t        queues;      /* umi_config_queues() */
    umi_port_range  ports;
    bool            moves_cuda; /* UCX reads and writes device memory */
    uint64_t        id; /* random; the first bytes of its workers' ids */
    pthread_mutex_t memhs_lock;
    umi_slots       memhs; /* open ones, by id */
    pthread_mutex_t waiters_lock;
    umi_list        waiters; /* umi_waiter.node, of all workers */
    pthread_mutex_t parked_lock;
    umi_list        parked; /* umx_worker.parked_node: worker/parked.h */
    /* Free them: true; or say that the context must stay. NULL: there have been
     * none. */
    bool (*end_parked)(umx_context *context);
};

void umi_context_hold(umx_context *context);

/* Give the context of UCX that is to be used for what is new, held. */
umi_ucx *umi_context_take_ucx(umx_context *context);

/* Give it back. UCX closes it with the last one. */
void umi_context_put_ucx(umi_ucx *ucx);

/* True if `ucx` is that context. */
bool umi_context_is_newest(umx_context *context, const umi_ucx *ucx);

/* Make UCX's context anew: the devices that `old` has are not those that are up
 * now. What is of `old` lives on. UMX_OK if there is another than `old`, which
 * another thread may have made. UMX_ERR_BUSY: memory is registered, which peers
 * reach by UCX itself, and the keys that they have are of `old`. */
umx_status umi_context_renew(umx_context *context, const umi_ucx *old);

/* True for device memory that UCX cannot reach: its bytes go by way of the
 * host. */
static inline bool
umi_must_stage(const umx_context *context, const umx_buffer *buf)
{
    return buf->memtype == UMX_MEMTYPE_CUDA && !context->moves_cuda &&
           buf->len != 0;
}

/* True if UCX would move the memory as the host's, and the CPU can. */
static inline bool
umi_context_is_host_buffer(const umx_context *context, const umx_buffer *buf)
{
    return buf->memtype == UMX_MEMTYPE_HOST ||
           (buf->memtype != UMX_MEMTYPE_CUDA && !context->moves_cuda);
}

/* The driver's memory that UCX does not know is staged, or the host's, too. */
static inline ucs_memory_type_t
umi_ucs_memtype(const umx_context *context, umx_memtype memtype)
{
    if (memtype > UMX_MEMTYPE_HOST && !context->moves_cuda) {
        return UCS_MEMORY_TYPE_HOST;
    }
    switch (memtype) {
    case UMX_MEMTYPE_HOST:
        return UCS_MEMORY_TYPE_HOST;
    case UMX_MEMTYPE_CUDA:
        return UCS_MEMORY_TYPE_CUDA;
    case UMX_MEMTYPE_CUDA_MANAGED:
        return UCS_MEMORY_TYPE_CUDA_MANAGED;
    case UMX_MEMTYPE_UNKNOWN:
        break;
    }
    return UCS_MEMORY_TYPE_UNKNOWN;
}

/* Print into memory with one of UCX's functions that write to a stream. */
typedef void (*umi_print_fn)(FILE *stream, const void *arg);
umx_status umi_print_to_text(umi_print_fn print, const void *arg,
                             char **text_p);

#endif
