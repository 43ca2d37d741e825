/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* accept4, O_PATH */

#include "worker/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/socket.h"
#include "util/clock.h"
#include "util/log.h"

enum {
    DEFAULT_BACKLOG  = 4096,
    ACCEPTS_PER_CALL = 64, /* others have their turn, too */
    PAUSE_MS         = 100
};

#define COMPLAIN_NS (60 * UINT64_C(1000000000))

void
umi_listener_hold(umx_listener *listener)
{
    umi_refs_get(&listener->refs);
}

void
umi_listener_release(umx_listener *listener)
{
    if (umi_refs_put(&listener->refs)) {
        umi_node_remove(&listener->put_off.node);
        free(listener);
    }
}

/* ---- accepting -----------------------------------------------------------
 */

static void pause_accepting(umx_listener *listener);

static int
open_spare(void)
{
    return open("/", O_PATH | O_CLOEXEC);
}

static int
accept_one(const umx_listener *listener)
{
    return accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

void
umi_listener_tell_few(umx_listener *listener)
{
    uint64_t now = umi_clock_ns();

    if (now >= listener->few_until_ns) {
        listener->few_until_ns = now + COMPLAIN_NS;
        umi_log(UMI_LOG_ERROR,
                "cannot accept connections: too few file descriptors are left; "
                "raise the limit of open files (ulimit -n)");
    }
}

/* Refuse a connection for which there is no descriptor, with the spare one. The
 * peer would wait for an answer until its time is over. */
static bool
refuse_one(umx_listener *listener)
{
    int fd;

    umi_listener_tell_few(listener);
    if (listener->spare < 0) {
        return false;
    }
    close(listener->spare);
    fd = accept_one(listener);
    if (fd >= 0) {
        listener->worker->stats->refused_connections++;
        listener->worker->hooks->on_busy(fd);
    }
    listener->spare = open_spare();
    return fd >= 0;
}

static void
accept_ready(umi_watch *watch, uint32_t events)
{
    umx_listener *listener = umi_container_of(watch, umx_listener, watch);

    (void)events;
    umi_listener_hold(listener);
    for (int i = 0; i < ACCEPTS_PER_CALL && !listener->is_destroyed; i++) {
        int fd = accept_one(listener);

        if (fd >= 0) {
            listener->worker->hooks->on_connection(listener, fd);
        } else if (errno == EMFILE || errno == ENFILE) {
            if (!refuse_one(listener)) {
                pause_accepting(listener);
                break;
            }
        } else if (errno == ENOMEM || errno == ENOBUFS) {
            umi_log(UMI_LOG_ERROR,
                    "cannot accept a connection: %s; trying again",
                    strerror(errno));
            pause_accepting(listener);
            break;
        } else if (errno == EAGAIN) {
            break;
        } /* else: that one connection is gone */
    }
    umi_listener_release(listener);
}

/* The system has no room for another connection: those that wait stay in its
 * queue, and are tried again in a while. */
static void
pause_accepting(umx_listener *listener)
{
    umi_watch_stop(&listener->worker->watches, &listener->watch);
    umi_timer_start(listener->worker, &listener->pause,
                    PAUSE_MS * UINT64_C(1000000));
}

static void
resume_accepting(umi_timer *timer)
{
    umx_listener *listener = umi_container_of(timer, umx_listener, pause);

    if (umi_watch_start(&listener->worker->watches, &listener->watch,
                        listener->fd, EPOLLIN, accept_ready) != UMX_OK) {
        pause_accepting(listener);
    }
}

/* ---- complaints ----------------------------------------------------------
 */

static void
host_of(const struct sockaddr *addr, uint8_t host[16])
{
    memset(host, 0, 16);
    if (addr->sa_family == AF_INET) {
        memcpy(host,
               &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
    } else if (addr->sa_family == AF_INET6) {
        memcpy(host,
               &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr,
               16);
    }
}

/* The host's, or one that nobody needs any more; NULL: all are needed. */
static umi_complaint *
find_complaint(umx_listener *listener, const uint8_t host[16], uint64_t now)
{
    umi_complaint *unused = NULL;

    for (int i = 0; i < UMI_COMPLAINTS; i++) {
        umi_complaint *complaint = &listener->complaints[i];

        if (complaint->until_ns != 0 &&
            memcmp(complaint->host, host, 16) == 0) {
            return complaint;
        }
        if (complaint->until_ns <= now) {
            unused = complaint;
        }
    }
    if (unused != NULL) {
        memcpy(unused->host, host, 16);
        unused->until_ns = 0;
        unused->num_held = 0;
    }
    return unused;
}

void
umi_listener_complain(umx_listener *listener, const umi_socket *sock,
                      const char *why)
{
    struct sockaddr_storage addr = {0};
    size_t                  len  = sizeof(addr);
    uint64_t                now  = umi_clock_ns();
    umi_complaint          *complaint;
    uint8_t                 host[16];
    char                    text[UMI_SOCKADDR_TEXT], more[48] = "";

    (void)!umi_socket_address(sock, true, (struct sockaddr *)&addr, &len);
    host_of((struct sockaddr *)&addr, host);
    complaint = find_complaint(listener, host, now);
    if (complaint == NULL || complaint->until_ns > now) {
        if (complaint != NULL) {
            complaint->num_held++;
        }
        return;
    }
    if (complaint->num_held > 0) {
        snprintf(more, sizeof(more), " (and %u times before)",
                 complaint->num_held);
    }
    complaint->num_held = 0;
    complaint->until_ns = now + COMPLAIN_NS;
    umi_sockaddr_text((struct sockaddr *)&addr, text);
    umi_log(UMI_LOG_WARN, "%s dropped: %s%s", text, why, more);
}

static void
retire_listener(umi_retire *retire)
{
    umx_listener_destroy(umi_container_of(retire, umx_listener, retire));
}

/* ---- life ----------------------------------------------------------------
 */

/* The name of a listener, for people: its address. */
static void
listener_text(const umx_listener *listener, char *text)
{
    struct sockaddr_storage addr = {0};
    size_t                  len  = sizeof(addr);

    (void)!umx_listener_address(listener, (struct sockaddr *)&addr, &len);
    umi_sockaddr_text((struct sockaddr *)&addr, text);
}

static void
log_listener(const umx_listener *listener, const char *what)
{
    char text[UMI_SOCKADDR_TEXT];

    if (!listener->is_internal && umi_log_is_on(UMI_LOG_INFO)) {
        listener_text(listener, text);
        umi_log_line(UMI_LOG_INFO, "listener on %s: %s", text, what);
    }
}

static bool
is_any_in6(const struct sockaddr *addr)
{
    const struct sockaddr_in6 *in6 = (const void *)addr;

    return addr->sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

static umx_status
open_socket(umx_listener *listener, const struct sockaddr *addr, size_t len)
{
    int on = 1, off = 0;
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    0);

    if (fd < 0) {
        return umi_status_from_errno(errno);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (addr->sa_family ==
        AF_INET6) { /* "::" is IPv4, too, whatever the system's default is */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(fd, addr, (socklen_t)len) != 0 ||
        listen(fd, (int)listener->backlog) != 0) {
        umx_status status = umi_status_from_errno(errno);

        close(fd);
        return status;
    }
    listener->fd      = fd;
    listener->is_dual = is_any_in6(addr);
    return UMX_OK;
}

/* One socket for both families has one port for both: the system chooses one
 * that is free in both, and refuses one that is taken in either. A system
 * without IPv6 says so for the socket or, where only its addresses are missing,
 * for bind(). */
static umx_status
open_any(umx_listener *listener, uint16_t port)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                               .sin6_port   = htons(port),
                               .sin6_addr   = IN6ADDR_ANY_INIT};
    struct sockaddr_in  in4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    umx_status          status = open_socket(listener, (struct sockaddr *)&in6,
                                             sizeof(in6));

    listener->is_any = true;
    if (status == UMX_ERR_UNREACHABLE || status == UMX_ERR_INVALID_ADDR) {
        status = open_socket(listener, (struct sockaddr *)&in4, sizeof(in4));
    }
    return status;
}

static umx_status
start_listening(umx_listener *listener, const umx_listener_params *params)
{
    umx_status status;

    if (params->addr == NULL) {
        status = open_any(
            listener,
            (params->field_mask & UMX_LISTENER_FIELD_PORT) ? params->port : 0);
    } else {
        status = open_socket(listener, params->addr, params->addr_len);
    }
    if (status != UMX_OK) {
        return status;
    }
    status = umi_watch_start(&listener->worker->watches, &listener->watch,
                             listener->fd, EPOLLIN, accept_ready);
    if (status != UMX_OK) {
        close(listener->fd);
    }
    return status;
}

static umx_status
check_params(const umx_listener_params *params)
{
    if (params->addr != NULL &&
        !umi_sockaddr_is_valid(params->addr, params->addr_len)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (params->on_accept == NULL &&
        !(params->field_mask & UMX_LISTENER_FIELD_ON_READY)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if ((params->field_mask & UMX_LISTENER_FIELD_BACKLOG) &&
        params->backlog < 1) {
        return UMX_ERR_INVALID_PARAM;
    }
    return UMX_OK;
}

static umx_listener *
listener_new(umx_worker *worker, const umx_listener_params *params)
{
    umx_listener *listener = calloc(1, sizeof(*listener));

    if (listener == NULL) {
        return NULL;
    }
    umi_list_init(&listener->accepted);
    umi_node_init(&listener->put_off.node);
    listener->worker = worker;
    umi_refs_init(&listener->refs);
    listener->on_accept   = params->on_accept;
    listener->arg         = params->arg;
    listener->is_internal = (params->field_mask &
                             UMI_LISTENER_FIELD_INTERNAL) != 0;
    listener->retire.fn   = retire_listener;
    listener->watch.fd    = -1;
    umi_timer_init(&listener->pause, resume_accepting);
    listener->backlog    = DEFAULT_BACKLOG;
    listener->timeout_ns = worker->context->config.connect_timeout_ns;
    if (params->field_mask & UMX_LISTENER_FIELD_WINDOW) {
        listener->window = params->window;
    }
    if (params->field_mask & UMX_LISTENER_FIELD_TIMEOUT) {
        listener->timeout_ns = params->timeout_ns;
    }
    if (params->field_mask & UMX_LISTENER_FIELD_ON_REMOTE_CLOSE) {
        listener->on_remote_close = params->on_remote_close;
    }
    if (params->field_mask & UMX_LISTENER_FIELD_ON_READY) {
        listener->on_ready = params->on_ready;
    }
    if (params->field_mask & UMX_LISTENER_FIELD_BACKLOG) {
        listener->backlog = (unsigned)params->backlog;
    }
    return listener;
}

umx_status
umx_listener_create(umx_worker *worker, const umx_listener_params *params,
                    umx_listener **listener_p)
{
    UMI_GUARD(worker);
    umx_listener *listener;
    umx_status    status = umi_worker_check_begin(worker);

    if (status == UMX_OK) {
        status = check_params(params);
    }
    if (status != UMX_OK) {
        return status;
    }
    listener = listener_new(worker, params);
    if (listener == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = start_listening(listener, params);
    if (status != UMX_OK) {
        free(listener);
        return status;
    }
    worker->stats->listeners++;
    listener->spare = open_spare();
    umi_list_append(&worker->listeners, &listener->node);
    log_listener(listener, "begun");
    *listener_p = listener;
    return UMX_OK;
}

void
umi_listener_stop(umx_listener *listener)
{
    umx_worker *worker = listener->worker;

    if (listener->is_destroyed) {
        return;
    }
    if (worker->generation == umi_fork_generation()) {
        log_listener(listener, "closed");
    }
    listener->is_destroyed = true;
    umi_node_remove(&listener->node);
    umi_timer_stop(&listener->pause);
    if (worker->generation == umi_fork_generation()) {
        umi_watch_stop(&worker->watches, &listener->watch);
        close(listener->fd);
        if (listener->spare >= 0) {
            close(listener->spare);
        }
    }
    listener->fd    = -1;
    listener->spare = -1;
    worker->stats->listeners--;
}

void
umx_listener_destroy(umx_listener *listener)
{
    UMI_GUARD_IF_ANY(listener->worker);
    umi_listener_stop(listener);
    if (listener->worker != NULL) {
        listener->worker->hooks->drop_accepted(listener);
    }
    umi_listener_release(listener);
}

void
umx_listener_set_on_accept(umx_listener *listener, umx_accept_fn fn, void *arg)
{
    UMI_GUARD_IF_ANY(listener->worker);
    listener->on_accept = fn;
    listener->arg       = arg;
    listener->on_ready  = NULL;
    if (fn == NULL) {
        listener->on_remote_close = NULL;
    }
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
    UMI_GUARD_IF_ANY(listener->worker);
    struct sockaddr_storage bound;
    socklen_t               len = sizeof(bound);

    if (listener->fd < 0) {
        return UMX_ERR_CLOSED;
    }
    if (getsockname(listener->fd, (struct sockaddr *)&bound, &len) != 0) {
        return umi_status_from_errno(errno);
    }
    if (listener->is_any && listener->is_dual) {
        struct sockaddr_in in4 = {
            .sin_family = AF_INET,
            .sin_port   = ((struct sockaddr_in6 *)&bound)->sin6_port};

        len = sizeof(in4);
        memcpy(&bound, &in4, len);
    }
    if (*len_p < len) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(addr, &bound, len);
    *len_p = len;
    return UMX_OK;
}

bool
umx_listener_is_dual(const umx_listener *listener)
{
    UMI_GUARD_IF_ANY(listener->worker);
    return listener->is_dual;
}
