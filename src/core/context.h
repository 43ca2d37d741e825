/* context.h: a UCX context, shared by its workers. Thread: any. */
#ifndef UMI_CONTEXT_H
#define UMI_CONTEXT_H

#include <stdatomic.h>
#include <ucp/api/ucp.h>
#include <umx/context.h>

#include "core/fork.h"

enum {
    UMI_TOKEN_MAX = 256
};

struct umx_context {
    ucp_context_h ucp;
    atomic_uint   refs;
    unsigned      generation; /* umi_fork_generation() at creation */
    int           ip_family;  /* of connections: see umi_context_can_use() */
    umx_config    config;     /* config.token leads to `token` */
    uint8_t       token[UMI_TOKEN_MAX];
};

void umi_context_hold(umx_context *context);

/* False, with a line in the log, for an address of the other family: UCX's
 * tcp gives each device one of its addresses (TCP_AF_PRIO says of which
 * family), and over a connection of the other family it writes past the end of
 * that device's endpoints (seen in 1.22). */
bool umi_context_can_use(const umx_context     *context,
                         const struct sockaddr *addr);

/* Print into memory with one of UCX's functions that write to a stream. */
typedef void (*umi_print_fn)(FILE *stream, const void *arg);
umx_status umi_print_to_text(umi_print_fn print, const void *arg,
                             char **text_p);

#endif
