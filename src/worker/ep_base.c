/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/ep_base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"
#include "util/log.h"
#include "worker/worker.h"

static atomic_ullong last_id; /* of the process */

umx_status
umi_ep_base_init(umi_ep_base *ep, umx_worker *worker,
                 void (*free)(umi_ep_base *ep))
{
    memset(ep, 0, sizeof(*ep));
    ep->wire_id = umi_ids_add(&worker->eps_by_id, ep);
    if (ep->wire_id == 0) {
        return UMX_ERR_NO_MEMORY;
    }
    ep->worker = worker;
    ep->engine = worker->engine;
    umi_engine_hold(ep->engine);
    umi_refs_init(&ep->refs);
    ep->id   = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    ep->free = free;
    umi_list_init(&ep->inflight);
    umi_list_init(&ep->waiting);
    umi_node_init(&ep->event_node);
    umi_node_init(&ep->link_node);
    umi_list_init(&ep->gathered);
    umi_list_append(&worker->eps, &ep->node);
    worker->stats->endpoints++;
    return UMX_OK;
}

void
umi_ep_base_use(umi_ep_base *ep, umi_engine *engine)
{
    umi_engine_hold(engine);
    umi_engine_release(ep->engine);
    ep->engine = engine;
}

void
umi_ep_base_flush_gathered(umi_ep_base *ep, bool is_closing)
{
    size_t    left = umi_list_count(&ep->gathered);
    umi_node *node;

    while ((node = umi_list_turn(&ep->gathered, &left)) != NULL) {
        umi_gathered *gathered = umi_container_of(node, umi_gathered, ep_node);

        if (is_closing) {
            gathered->close(gathered);
        } else {
            gathered->flush(gathered);
        }
    }
}

void
umi_ep_base_fini(umi_ep_base *ep)
{
    umi_node_remove(&ep->node);
    umi_node_remove(&ep->event_node);
    if (ep->worker != NULL) {
        umi_ids_remove(&ep->worker->eps_by_id, ep->wire_id);
        umi_engine_release(ep->engine);
        ep->worker->stats->endpoints--;
    }
}

void
umi_ep_base_raise(umi_ep_base *ep, unsigned events)
{
    UMI_ASSERT_LOCKED(ep->worker);
    ep->events |= events;
    if (!umi_node_is_linked(&ep->event_node)) {
        umi_list_append(&ep->worker->ep_events, &ep->event_node);
        ep->worker->has_events = true;
        ep->worker->is_armed   = false;
        umi_ep_base_hold(ep);
    }
}

/* ---- operations of UCX's own ---------------------------------------------
 */

umx_status
umi_ep_base_post_status(const umi_ep_base *ep)
{
    umx_status status;

    if (ep->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = umi_worker_check(ep->worker);
    if (status != UMX_OK) {
        return status;
    }
    if (ep->is_draining || ep->end_status == UMX_ERR_CANCELED) {
        return UMX_ERR_CLOSED;
    }
    return ep->end_status;
}

umx_status
umi_ep_base_post(umi_ep_base *ep, umx_request *req, umx_request **req_p)
{
    umx_status status = UMX_INPROGRESS;

    if (ep->is_bound) {
        status = req->ops->post(req);
    } else {
        umi_list_append(&ep->waiting, &req->node);
    }
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else {
        umi_request_free(req);
    }
    return status;
}

void
umi_ep_base_post_waiting(umi_ep_base *ep)
{
    umi_node *node;

    while ((node = umi_list_pop(&ep->waiting)) != NULL) {
        umx_request *req    = umi_container_of(node, umx_request, node);
        umx_status   status = req->ops->post(req);

        if (status != UMX_INPROGRESS) {
            umi_request_complete(req, status);
        }
    }
}

void
umi_ep_base_end_raw(umi_ep_base *ep, umx_status status)
{
    ep->end_status = status;
    UMI_LIST_FOREACH_SAFE(node, &ep->worker->inflight) {
        umx_request *req = umi_container_of(node, umx_request, node);

        if (req->ep == ep && !umi_request_is_detached(req)) {
            req->ops->cancel(req);
        }
    }
}

#if UCP_API_VERSION >= UCP_VERSION(1, 14)
#define UMI_HAVE_EP_TRANSPORTS 1
#endif

void
umi_ep_base_refuse(umi_ep_base *ep, const char *why)
{
    umi_log(UMI_LOG_WARN, "endpoint %llu: %s", (unsigned long long)ep->id, why);
    ep->worker->stats->protocol_errors++;
    ep->ucx_error = UMX_ERR_PROTOCOL;
    umi_ep_base_raise(ep, UMI_EP_EVENT_ERROR);
}

bool
umi_transport_is_shm(const char *name)
{
    return strcmp(name, "sysv") == 0 || strcmp(name, "posix") == 0 ||
           strcmp(name, "xpmem") == 0;
}

enum {
    MAX_LANES = 32,
    NAME_SIZE = 64
};

static void
print_handle(FILE *stream, const void *arg)
{
    ucp_ep_print_info((ucp_ep_h)(uintptr_t)arg, stream);
}

/* What a line says, such as "#  lane[0]:  4:tcp/lo.0 md[0]  -> md[0]/tcp": the
 * device ends before the last dot. */
static void
read_lane(const char *line, umx_transport_fn fn, void *arg)
{
    char  transport[NAME_SIZE], device[NAME_SIZE];
    char *dot;

    if (sscanf(line, "# lane[%*u]: %*u:%63[^/]/%63s", transport, device) == 2) {
        dot = strrchr(device, '.');
        if (dot != NULL) {
            *dot = '\0';
        }
        fn(transport, device, arg);
    }
}

/* UCX before 1.14 tells it in a text for people only. */
static umx_status
transports_of_text(ucp_ep_h handle, umx_transport_fn fn, void *arg)
{
    char      *text;
    umx_status status = umi_print_to_text(print_handle, handle, &text);

    if (status != UMX_OK) {
        return status;
    }
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += (*line == '\n');
        read_lane(line, fn, arg);
    }
    free(text);
    return UMX_OK;
}

umx_status
umi_transport_each(ucp_ep_h handle, umx_transport_fn fn, void *arg)
{
#ifdef UMI_HAVE_EP_TRANSPORTS
    ucp_transport_entry_t entries[MAX_LANES];
    ucp_ep_attr_t         attr = {
                .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                .transports = {.entries     = entries,
                               .num_entries = MAX_LANES,
                               .entry_size  = sizeof(ucp_transport_entry_t)},
    };
    umx_status status;

    /* UCX before 1.14, which may be loaded although a newer one's headers were
     * here, does not know the field and leaves it as it is. */
    entries[0].transport_name = NULL;
    status                    = (umx_status)ucp_ep_query(handle, &attr);
    if (status != UMX_OK) {
        return status;
    }
    if (attr.transports.num_entries > 0 && entries[0].transport_name == NULL) {
        return transports_of_text(handle, fn, arg);
    }
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        fn(entries[i].transport_name, entries[i].device_name, arg);
    }
    return UMX_OK;
#else
    return transports_of_text(handle, fn, arg);
#endif
}

umx_status
umx_ep_transports(const umx_ep *ep, umx_transport_fn fn, void *arg)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    const umi_ep_base *base = umi_ep_base_of(ep);

    return (base->handle == NULL) ? UMX_ERR_CLOSED :
                                    umi_transport_each(base->handle, fn, arg);
}

static void
print_ep(FILE *stream, const void *arg)
{
    const umi_ep_base *ep = arg;

    ucp_ep_print_info(ep->handle, stream);
}

umx_status
umx_ep_info(const umx_ep *ep, char **text_p)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    const umi_ep_base *base = umi_ep_base_of(ep);

    if (base->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    return umi_print_to_text(print_ep, base, text_p);
}

void *
umx_ep_handle(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    return umi_ep_base_of(ep)->handle;
}

uint64_t
umx_ep_id(const umx_ep *ep)
{
    return umi_ep_base_of(ep)->id;
}

umx_worker *
umx_ep_worker(const umx_ep *ep)
{
    return umi_ep_base_of(ep)->worker;
}
