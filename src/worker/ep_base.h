/* SPDX-License-Identifier: BSD-3-Clause */
/* ep_base.h: UCX's side of an endpoint. The layer above embeds it as the
 * first member of struct umx_ep. Thread: the worker's owner. */
#ifndef UMI_EP_BASE_H
#define UMI_EP_BASE_H

#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <umx/endpoint.h>

#include "util/list.h"
#include "util/refcnt.h"

enum umi_ep_base_events {
    UMI_EP_EVENT_ERROR = 1u << 0, /* UCX's error handler ran: `ucx_error` */
    UMI_EP_EVENT_LAYER = 1u << 1  /* the layer above asked for a visit */
};

/* What a layer above has gathered for an endpoint and not handed over yet: it
 * does so when the worker next runs events, or the endpoint closes or flushes.
 */
typedef struct umi_gathered {
    umi_node            ep_node;     /* umi_ep_base.gathered */
    umi_node            worker_node; /* umx_worker.gathered; or by itself */
    struct umi_ep_base *ep;          /* held */
    void (*flush)(struct umi_gathered *gathered);
    void (*close)(struct umi_gathered *gathered); /* flush, whatever waits */
} umi_gathered;

typedef struct umi_ep_base {
    umx_worker         *worker;
    struct umi_engine  *engine; /* held: its address is what the peer is told */
    struct umi_link    *link;   /* NULL before the handshake and once closed */
    struct umi_lend_ep *lend;   /* lend/note.h */
    struct umi_bounce_ep   *bounce;    /* bounce/bounce.h */
    struct umi_transfer_ep *transfers; /* ops/transfer.h */
    ucp_ep_h                handle;    /* the peer's; NULL without one */
    uint64_t    wire_id;   /* what the peer puts in front of messages to it */
    uint64_t    remote_id; /* what we put in front of ours; 0: not known yet */
    umi_node    link_node; /* link->eps */
    bool        is_bound;  /* the handshake has settled on `link` */
    bool        does_bounce; /* the peer knows bounce/bounce.h */
    bool        is_cut;      /* it has ended, and not by agreement */
    bool        is_outlived; /* and UCX's endpoint has not */
    umi_refs    refs;
    unsigned    events;
    umi_list    inflight;      /* requests in UCX's hands */
    umi_list    waiting;       /* requests for UCX, before `is_bound` */
    umi_node    node;          /* worker->eps */
    umi_node    event_node;    /* worker->ep_events */
    umi_list    gathered;      /* umi_gathered.ep_node */
    bool        is_draining;   /* no new work */
    unsigned    num_tag_sends; /* of `inflight`: UCX's own tags */
    uint64_t    raw_tags;      /* tag sends posted so far */
    umx_status  ucx_error;
    const char *reason; /* for it, static; NULL: no more is known */
    umx_status
             end_status; /* why umi_ep_base_end_raw() was called; else UMX_OK */
    uint64_t id;
    void (*free)(struct umi_ep_base *ep); /* refs is 0 */
} umi_ep_base;

static inline umi_ep_base *
umi_ep_base_of(const umx_ep *ep)
{
    return (umi_ep_base *)(void *)(uintptr_t)ep;
}

/* Translate what UCX says of an endpoint or an operation on it. The end of a
 * peer is one thing: UCX 1.13 calls it ENDPOINT_TIMEOUT, later ones that only
 * if a keepalive found out. */
static inline umx_status
umi_ep_status(ucs_status_t status)
{
    return (status == UCS_ERR_ENDPOINT_TIMEOUT) ? UMX_ERR_CONNECTION_RESET :
                                                  (umx_status)status;
}

/* Prepare `ep` with one reference; nothing of UCX yet. */
umx_status umi_ep_base_init(umi_ep_base *ep, umx_worker *worker,
                            void (*free)(umi_ep_base *ep));

/* Let `ep`, which has no link yet, live in another engine. */
void umi_ep_base_use(umi_ep_base *ep, struct umi_engine *engine);

static inline void
umi_ep_base_hold(umi_ep_base *ep)
{
    umi_refs_get(&ep->refs);
}

/* Release a reference; with the last one `free` is called. */
static inline void
umi_ep_base_release(umi_ep_base *ep)
{
    if (umi_refs_put(&ep->refs)) {
        ep->free(ep);
    }
}

/* Hand over what is gathered for `ep`; `is_closing`: no more can be. */
void umi_ep_base_flush_gathered(umi_ep_base *ep, bool is_closing);

/* Take `ep` off the worker's lists, before its memory goes. */
void umi_ep_base_fini(umi_ep_base *ep);

/* Tell why nothing more can be posted; UMX_OK if it can, or will wait. */
umx_status umi_ep_base_post_status(const umi_ep_base *ep);

/* Post `req`: it goes to UCX, or waits for the handshake. Returns as a posting
 * call; `req` is freed unless UMX_INPROGRESS. */
umx_status umi_ep_base_post(umi_ep_base *ep, umx_request *req,
                            umx_request **req_p);

/* Hand what waits to UCX: the handshake is over. */
void umi_ep_base_post_waiting(umi_ep_base *ep);

/* End work outside of channels: cancel receives of UCX's tags that name `ep`,
 * which UCX would keep. They end with `status`. */
void umi_ep_base_end_raw(umi_ep_base *ep, umx_status status);

/* Ask for UMI_NEWS_EVENTS. */
void umi_ep_base_raise(umi_ep_base *ep, unsigned events);

/* End `ep`: the peer has sent what it may not. Safe inside UCX's callbacks. */
void umi_ep_base_refuse(umi_ep_base *ep, const char *why);

/* True if processes of a host share a queue by the transport `name`. */
bool umi_transport_is_shm(const char *name);

/* Walk the lanes of UCX's endpoint, as umx_ep_transports(). */
umx_status umi_transport_each(ucp_ep_h handle, umx_transport_fn fn, void *arg);

#endif
