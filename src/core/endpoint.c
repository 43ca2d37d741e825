#include "core/endpoint.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>

#include "core/worker.h"
#include "util/log.h"

static atomic_ullong last_id; /* of the process */

void
umi_ep_init(umi_ep *ep, umx_worker *worker, void (*free)(umi_ep *ep))
{
    memset(ep, 0, sizeof(*ep));
    ep->worker = worker;
    ep->refs   = 1;
    ep->id   = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    ep->free = free;
    umi_list_init(&ep->inflight);
    umi_link_init(&ep->event_link);
    umi_list_append(&worker->eps, &ep->link);
    worker->stats.endpoints++;
}

void
umi_ep_fini(umi_ep *ep)
{
    umi_link_remove(&ep->link);
    umi_link_remove(&ep->event_link);
    if (ep->worker != NULL) {
        ep->worker->stats.endpoints--;
    }
}

void
umi_ep_raise(umi_ep *ep, unsigned events)
{
    ep->events |= events;
    if (!umi_link_is_linked(&ep->event_link)) {
        umi_list_append(&ep->worker->ep_events, &ep->event_link);
        ep->worker->has_events = true;
        umi_ep_hold(ep);
    }
}

static void
on_ucx_error(void *arg, ucp_ep_h handle, ucs_status_t status)
{
    umi_ep *ep = arg;

    if (ep->handle != handle) {
        return; /* given up already */
    }
    ep->ucx_error = umi_ep_status(status);
    umi_ep_raise(ep, UMI_EP_EVENT_ERROR);
}

static umx_status
open_with(umi_ep *ep, ucp_ep_params_t *params)
{
    umx_worker  *worker = ep->worker;
    ucs_status_t status;
    ucp_ep_h     handle;

    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb  = on_ucx_error;
    params->err_handler.arg = ep;
    status                  = ucp_ep_create(worker->ucp, params, &handle);
    if (status != UCS_OK) {
        return (umx_status)status;
    }
    worker->is_armed = false;
    ep->handle       = handle;
    if (!umi_ptr_map_put(&worker->eps_by_handle, handle, ep)) {
        umi_ep_force_close(ep);
        return UMX_ERR_NO_MEMORY;
    }
    return UMX_OK;
}

umx_status
umi_ep_open(umi_ep *ep, const struct sockaddr *addr, size_t addr_len,
            const struct sockaddr *local, size_t local_len)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr   = {.addr = addr, .addrlen = (socklen_t)addr_len},
    };

    if (local != NULL) {
        params.field_mask |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
        params.local_sockaddr.addr    = local;
        params.local_sockaddr.addrlen = (socklen_t)local_len;
    }
    return open_with(ep, &params);
}

umx_status
umi_ep_open_request(umi_ep *ep, void *conn_request)
{
    ucp_ep_params_t params = {
        .field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST,
        .conn_request = conn_request,
    };

    return open_with(ep, &params);
}

void
umi_ep_cancel_receives(umi_ep *ep, umx_status status)
{
    ep->end_status = status;
    UMI_LIST_FOREACH_SAFE(link, &ep->inflight) {
        umx_request *req = umi_container_of(link, umx_request, link);

        if (req->ops->outlives_ep) {
            req->ops->cancel(req);
        }
    }
}

static void
on_closed(void *request, ucs_status_t status, void *arg)
{
    umx_worker *worker = arg;

    (void)status;
    ucp_request_free(request);
    worker->closes_in_ucx--;
}

void
umi_ep_force_close(umi_ep *ep)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags     = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send   = on_closed,
        .user_data = ep->worker,
    };
    umx_worker      *worker = ep->worker;
    ucp_ep_h         handle = ep->handle;
    ucs_status_ptr_t request;

    if (handle == NULL) {
        return;
    }
    ep->handle = NULL;
    umi_ptr_map_remove(&worker->eps_by_handle, handle);
    worker->last_handle = NULL; /* UCX may give the handle out again */
    worker->last_ep     = NULL; /* and NULL is what no endpoint arrives with */
    worker->is_armed    = false;
    request             = ucp_ep_close_nbx(handle, &params);
    if (UCS_PTR_IS_PTR(request)) {
        worker->closes_in_ucx++;
    } else if (UCS_PTR_IS_ERR(request)) {
        umi_log(UMI_LOG_DEBUG, "closing endpoint %llu: %s",
                (unsigned long long)ep->id,
                umx_status_string((umx_status)UCS_PTR_STATUS(request)));
    }
}

#if UCP_API_VERSION >= UCP_VERSION(1, 14)
#define UMI_HAVE_EP_TRANSPORTS 1
#endif

enum {
    MAX_LANES = 32
};

umx_status
umx_ep_transports(const umx_ep *ep, umx_transport_fn fn, void *arg)
{
#ifdef UMI_HAVE_EP_TRANSPORTS
    ucp_transport_entry_t entries[MAX_LANES];
    ucp_ep_attr_t         attr = {
                .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                .transports = {.entries     = entries,
                               .num_entries = MAX_LANES,
                               .entry_size  = sizeof(ucp_transport_entry_t)},
    };
    const umi_ep *base = umi_ep_of(ep);
    umx_status    status;

    if (base->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = (umx_status)ucp_ep_query(base->handle, &attr);
    if (status != UMX_OK) {
        return status;
    }
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        fn(entries[i].transport_name, entries[i].device_name, arg);
    }
    return UMX_OK;
#else
    (void)ep;
    (void)fn;
    (void)arg;
    return UMX_ERR_UNSUPPORTED;
#endif
}

static void
note_shm(const char *transport, const char *device, void *arg)
{
    bool *has_shm = arg;

    (void)device;
    if (strcmp(transport, "sysv") == 0 || strcmp(transport, "posix") == 0 ||
        strcmp(transport, "xpmem") == 0) {
        *has_shm = true;
    }
}

bool
umi_ep_has_shm(const umi_ep *ep)
{
    bool has_shm = false;

    if (umx_ep_transports((const umx_ep *)(const void *)ep, note_shm,
                          &has_shm) != UMX_OK) {
        return false;
    }
    return has_shm;
}

static umx_status
query_address(const umx_ep *ep, uint64_t field, struct sockaddr *addr,
              size_t *len_p)
{
    ucp_ep_attr_t                  attr = {.field_mask = field};
    const struct sockaddr_storage *found;
    const umi_ep                  *base = umi_ep_of(ep);
    umx_status                     status;
    size_t                         len;

    if (base->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = (umx_status)ucp_ep_query(base->handle, &attr);
    if (status == UMX_ERR_NOT_CONNECTED || status == UMX_ERR_UNSUPPORTED) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (status != UMX_OK) {
        return status;
    }
    found = (field == UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR) ?
                &attr.remote_sockaddr :
                &attr.local_sockaddr;
    len   = (found->ss_family == AF_INET6) ? sizeof(struct sockaddr_in6) :
                                             sizeof(struct sockaddr_in);
    if (*len_p < len) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(addr, found, len);
    *len_p = len;
    return UMX_OK;
}

umx_status
umx_ep_peer_address(const umx_ep *ep, struct sockaddr *addr, size_t *len_p)
{
    return query_address(ep, UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR, addr, len_p);
}

umx_status
umx_ep_local_address(const umx_ep *ep, struct sockaddr *addr, size_t *len_p)
{
    return query_address(ep, UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR, addr, len_p);
}

static void
print_ep(FILE *stream, const void *arg)
{
    const umi_ep *ep = arg;

    ucp_ep_print_info(ep->handle, stream);
}

umx_status
umx_ep_info(const umx_ep *ep, char **text_p)
{
    const umi_ep *base = umi_ep_of(ep);

    if (base->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    return umi_print_to_text(print_ep, base, text_p);
}

void *
umx_ep_handle(const umx_ep *ep)
{
    return umi_ep_of(ep)->handle;
}

uint64_t
umx_ep_id(const umx_ep *ep)
{
    return umi_ep_of(ep)->id;
}

umx_worker *
umx_ep_worker(const umx_ep *ep)
{
    return umi_ep_of(ep)->worker;
}
