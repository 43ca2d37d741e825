/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.h: a listening socket. Not UCX's listener: that one reads freed
 * memory when a connection that it accepted sends its request after the
 * listener has gone (seen in 1.21 and 1.22). Thread: the worker's owner. */
#ifndef UMI_LISTENER_H
#define UMI_LISTENER_H

#include <umx/listener.h>

#include "host/socket.h"
#include "host/watch.h"
#include "util/refcnt.h"
#include "worker/worker.h"

enum {
    UMI_COMPLAINTS = 16
};

/* umx_listener_params.field_mask: the callbacks are the library's. */
#define UMI_LISTENER_FIELD_INTERNAL (1u << 31)

/* A host that has sent what it should not. */
typedef struct umi_complaint {
    uint8_t  host[16];
    uint64_t until_ns; /* 0: free; no line about it before */
    unsigned num_held; /* that were not written */
} umi_complaint;

struct umx_listener {
    umi_watch     watch; /* its fd is the socket; -1 while not accepting */
    int           fd;
    int           spare;        /* given up to refuse a connection; -1: none */
    uint64_t      few_until_ns; /* no line about descriptors before */
    umi_timer     pause;        /* out of descriptors: try again then */
    umx_worker   *worker;       /* NULL once that is destroyed */
    umi_node      node;         /* worker->listeners */
    umi_retire    retire;
    umi_put_off   put_off; /* the callbacks that are due */
    umx_accept_fn on_accept;
    umx_accept_ready_fn on_ready;        /* instead, or NULL */
    umi_list            accepted;        /* not taken; the layer above's */
    umx_remote_close_fn on_remote_close; /* NULL: not allowed */
    void               *arg;
    uint64_t            timeout_ns;
    umx_window          window; /* zeros: the config's */
    unsigned            backlog;
    unsigned            num_handshakes; /* the layer's count, kept <= backlog */
    umi_complaint       complaints[UMI_COMPLAINTS];
    bool                is_destroyed;
    bool                is_internal;      /* the callbacks are the library's */
    bool                is_close_put_off; /* `on_remote_close` is due */
    bool                is_dual;          /* of both families */
    bool                is_any;           /* made without an address */
    umi_refs            refs; /* user's + one per handshake and endpoint */
};

/* Log why the peer of `sock` is dropped, with its address: a line for each host
 * and minute, for UMI_COMPLAINTS hosts at a time. */
void umi_listener_complain(umx_listener *listener, const umi_socket *sock,
                           const char *why);

/* Log that there are too few descriptors: a line a minute. */
void umi_listener_tell_few(umx_listener *listener);

void umi_listener_hold(umx_listener *listener);
void umi_listener_release(umx_listener *listener);
/* End a listener but for the user's reference. Idempotent. */
void umi_listener_stop(umx_listener *listener);

#endif
