/* listener.h: UCX's side of a listener. Thread: the worker's owner. */
#ifndef UMI_LISTENER_H
#define UMI_LISTENER_H

#include <ucp/api/ucp.h>
#include <umx/listener.h>

#include "core/worker.h"

struct umx_listener {
    ucp_listener_h ucp;
    umx_worker    *worker; /* NULL once that is destroyed */
    umi_link       link;   /* worker->listeners */
    umi_retire     retire;
    umx_accept_fn  on_accept;
    void          *arg;
    uint64_t       timeout_ns;
    unsigned       backlog;
    unsigned       num_handshakes; /* the layer's count, kept <= backlog */
    bool           is_destroyed;
    unsigned       refs; /* user's + one per handshake */
};

/* One connection request, between UCX's callback and the hook. */
typedef struct umi_accept {
    umi_link      link;
    umx_listener *listener;
    void         *conn_request;
} umi_accept;

void umi_listener_hold(umx_listener *listener);
void umi_listener_release(umx_listener *listener);
/* The end of it but for the user's reference. Idempotent. */
void umi_listener_stop(umx_listener *listener);
/* Refuse a connection request. */
void umi_listener_reject(umx_listener *listener, void *conn_request);

#endif
