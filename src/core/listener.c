#include "core/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/log.h"

enum {
    DEFAULT_BACKLOG = 4096
};

void
umi_listener_hold(umx_listener *listener)
{
    listener->refs++;
}

void
umi_listener_release(umx_listener *listener)
{
    if (--listener->refs == 0) {
        free(listener);
    }
}

void
umi_listener_reject(umx_listener *listener, void *conn_request)
{
    if (listener->ucp != NULL) {
        (void)ucp_listener_reject(listener->ucp, conn_request);
    }
}

/* UCX's callback: only queue. */
static void
on_ucx_conn_request(ucp_conn_request_h conn_request, void *arg)
{
    umx_listener *listener = arg;
    umi_accept   *accept   = malloc(sizeof(*accept));

    if (accept == NULL) {
        umi_log(UMI_LOG_ERROR, "connection refused: out of memory");
        umi_listener_reject(listener, conn_request);
        return;
    }
    accept->listener     = listener;
    accept->conn_request = conn_request;
    umi_listener_hold(listener);
    umi_list_append(&listener->worker->accepts, &accept->link);
    listener->worker->has_events = true;
}

static void
retire_listener(umi_retire *retire)
{
    umx_listener_destroy(umi_container_of(retire, umx_listener, retire));
}

/* UCX says "I/O error" for whatever bind() says but "address in use". */
static umx_status
bind_status(const umx_listener_params *params, umx_status status)
{
    int fd;

    if (status != UMX_ERR_IO_ERROR) {
        return status;
    }
    fd = socket(params->addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return status;
    }
    if (bind(fd, params->addr, (socklen_t)params->addr_len) != 0 &&
        errno == EADDRNOTAVAIL) {
        status = UMX_ERR_INVALID_ADDR;
    }
    close(fd);
    return status;
}

static umx_status
listener_bind(umx_listener *listener, const umx_listener_params *params)
{
    ucp_listener_params_t ucp_params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {.addr    = params->addr,
                         .addrlen = (socklen_t)params->addr_len},
        .conn_handler = {.cb = on_ucx_conn_request, .arg = listener},
    };
    umx_status status;

    status = (umx_status)ucp_listener_create(listener->worker->ucp, &ucp_params,
                                             &listener->ucp);
    return bind_status(params, status);
}

static bool
address_is_valid(const struct sockaddr *addr, size_t len)
{
    if (addr == NULL || len < sizeof(addr->sa_family)) {
        return false;
    }
    return (addr->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) ||
           (addr->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6));
}

umx_status
umx_listener_create(umx_worker *worker, const umx_listener_params *params,
                    umx_listener **listener_p)
{
    umx_listener *listener;
    umx_status    status = umi_worker_check(worker);

    if (status != UMX_OK) {
        return status;
    }
    if (!address_is_valid(params->addr, params->addr_len) ||
        params->on_accept == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (!umi_context_can_use(worker->context, params->addr)) {
        return UMX_ERR_UNREACHABLE;
    }
    listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    listener->worker     = worker;
    listener->refs       = 1;
    listener->on_accept  = params->on_accept;
    listener->arg        = params->arg;
    listener->retire.fn  = retire_listener;
    listener->backlog    = DEFAULT_BACKLOG;
    listener->timeout_ns = worker->context->config.connect_timeout_ns;
    if (params->field_mask & UMX_LISTENER_FIELD_TIMEOUT) {
        listener->timeout_ns = params->timeout_ns;
    }
    if (params->field_mask & UMX_LISTENER_FIELD_BACKLOG) {
        if (params->backlog < 1) {
            status = UMX_ERR_INVALID_PARAM;
            goto free_listener;
        }
        listener->backlog = (unsigned)params->backlog;
    }
    status = listener_bind(listener, params);
    if (status != UMX_OK) {
        goto free_listener;
    }
    worker->is_armed = false;
    worker->stats.listeners++;
    umi_list_append(&worker->listeners, &listener->link);
    *listener_p = listener;
    return UMX_OK;

free_listener:
    free(listener);
    return status;
}

/* Connection requests that UCX has handed over but nobody has looked at. */
static void
reject_queued(umx_listener *listener)
{
    UMI_LIST_FOREACH_SAFE(link, &listener->worker->accepts) {
        umi_accept *accept = umi_container_of(link, umi_accept, link);

        if (accept->listener == listener) {
            umi_link_remove(link);
            umi_listener_reject(listener, accept->conn_request);
            free(accept);
            umi_listener_release(listener);
        }
    }
}

void
umi_listener_stop(umx_listener *listener)
{
    umx_worker *worker = listener->worker;

    if (listener->is_destroyed) {
        return;
    }
    listener->is_destroyed = true;
    umi_link_remove(&listener->link);
    if (worker->generation == umi_fork_generation()) {
        reject_queued(listener);
        ucp_listener_destroy(listener->ucp);
    }
    listener->ucp = NULL;
    worker->stats.listeners--;
}

void
umx_listener_destroy(umx_listener *listener)
{
    umi_listener_stop(listener);
    umi_listener_release(listener);
}

void
umx_listener_set_on_accept(umx_listener *listener, umx_accept_fn fn, void *arg)
{
    listener->on_accept = fn;
    listener->arg       = arg;
}

void
umx_listener_retire(umx_listener *listener)
{
    if (listener->worker == NULL) {
        umx_listener_destroy(listener);
    } else {
        umi_worker_retire(listener->worker, &listener->retire);
    }
}

umx_status
umx_listener_address(const umx_listener *listener, struct sockaddr *addr,
                     size_t *len_p)
{
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    umx_status          status;
    size_t              len;

    if (listener->ucp == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = (umx_status)ucp_listener_query(listener->ucp, &attr);
    if (status != UMX_OK) {
        return status;
    }
    len = (attr.sockaddr.ss_family == AF_INET6) ? sizeof(struct sockaddr_in6) :
                                                  sizeof(struct sockaddr_in);
    if (*len_p < len) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(addr, &attr.sockaddr, len);
    *len_p = len;
    return UMX_OK;
}
