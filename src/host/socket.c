/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* POLLRDHUP */

#include "host/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/bytes.h"

#define SECOND_NS UINT64_C(1000000000)

enum {
    LENGTH_SIZE = 4,
    BYTE_PING   = 1,
    BYTE_PONG   = 2,
    NUM_BYTES   = 64, /* so many are read at a time */
    BUFFER_SIZE = LENGTH_SIZE + UMI_SOCKET_MESSAGE_MAX
};

struct umi_socket_buffers {
    size_t                  in_len;
    size_t                  out_pos;
    size_t                  out_len;
    bool                    is_finishing; /* SHUT_WR once all is written */
    bool                    is_settling;  /* goes once all is written */
    struct sockaddr_storage peer;
    uint8_t                 in[BUFFER_SIZE];
    uint8_t                 out[BUFFER_SIZE];
};

static void
drop_buffers(umi_socket *sock)
{
    free(sock->buffers);
    sock->buffers = NULL;
}

/* True once the handshake is over: no messages go over the socket then, only
 * bytes that ask for signs of life and answer. */
static bool
is_settled(const umi_socket *sock)
{
    return sock->buffers == NULL || sock->buffers->is_settling;
}

/* ---- output --------------------------------------------------------------
 */

static void
want_output(umi_socket *sock, bool wants)
{
    umi_watch_change(sock->watches, &sock->watch,
                     wants ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Write what there is. */
static umx_status
write_out(umi_socket *sock)
{
    umi_socket_buffers *buffers = sock->buffers;

    while (buffers->out_pos < buffers->out_len) {
        ssize_t n = send(sock->watch.fd, buffers->out + buffers->out_pos,
                         buffers->out_len - buffers->out_pos, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            want_output(sock, true);
            return UMX_OK;
        }
        if (n < 0) {
            return umi_status_from_errno(errno);
        }
        buffers->out_pos += (size_t)n;
    }
    buffers->out_pos = buffers->out_len = 0;
    want_output(sock, false);
    if (buffers->is_finishing) {
        (void)shutdown(sock->watch.fd, SHUT_WR);
    }
    if (buffers->is_settling) {
        drop_buffers(sock);
    }
    return UMX_OK;
}

void
umi_socket_unsend(umi_socket *sock)
{
    if (sock->buffers != NULL) {
        sock->buffers->out_len = 0;
    }
}

umx_status
umi_socket_send(umi_socket *sock, const void *data, size_t len)
{
    umi_socket_buffers *buffers = sock->buffers;
    umi_writer          writer;

    if (sock->watch.fd < 0 || is_settled(sock) || buffers->is_finishing) {
        return UMX_ERR_CLOSED;
    }
    if (len > UMI_SOCKET_MESSAGE_MAX ||
        buffers->out_len + LENGTH_SIZE + len > BUFFER_SIZE) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    umi_writer_init(&writer, buffers->out + buffers->out_len,
                    LENGTH_SIZE + len);
    umi_write_u32(&writer, (uint32_t)len);
    umi_write_bytes(&writer, data, len);
    buffers->out_len += LENGTH_SIZE + len;
    return sock->is_connecting ? UMX_OK : write_out(sock);
}

void
umi_socket_finish(umi_socket *sock)
{
    if (sock->watch.fd < 0 || is_settled(sock)) {
        return;
    }
    sock->buffers->is_finishing = true;
    if (!sock->is_connecting) {
        (void)write_out(sock); /* a failure shows when reading */
    }
}

/* Send a byte; false if it does not fit into the socket, which may have a part
 * of the last message still to take. */
static bool
send_byte(umi_socket *sock, uint8_t byte)
{
    return sock->buffers == NULL &&
           send(sock->watch.fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* Take bytes that have come to a settled socket: UMX_ERR_PROTOCOL if they are
 * not what its peer may send. */
static umx_status
hear(umi_socket *sock, const uint8_t *bytes, size_t len)
{
    sock->num_heard++;
    sock->is_asked = false;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == BYTE_PING) {
            /* What does not fit is not needed: much is on its way then. */
            (void)send_byte(sock, BYTE_PONG);
        } else if (bytes[i] != BYTE_PONG) {
            return UMX_ERR_PROTOCOL;
        }
    }
    return UMX_OK;
}

/* ---- input ---------------------------------------------------------------
 */

/* Hand over what is complete. False if the peer speaks something else. */
static bool
take_messages(umi_socket *sock)
{
    while (!is_settled(sock) && sock->buffers->in_len >= LENGTH_SIZE) {
        umi_socket_buffers *buffers = sock->buffers;
        uint8_t             rest[NUM_BYTES];
        umi_reader          reader;
        uint32_t            len;
        size_t              used, num_rest;

        umi_reader_init(&reader, buffers->in, buffers->in_len);
        len = umi_read_u32(&reader);
        if (len > UMI_SOCKET_MESSAGE_MAX ||
            !sock->ops->may_begin(buffers->in + LENGTH_SIZE,
                                  buffers->in_len - LENGTH_SIZE < len ?
                                      buffers->in_len - LENGTH_SIZE :
                                      len)) {
            return false;
        }
        used = LENGTH_SIZE + len;
        if (buffers->in_len < used) {
            return true;
        }
        num_rest = buffers->in_len - used;
        num_rest = (num_rest < NUM_BYTES) ? num_rest : NUM_BYTES;
        memcpy(rest, buffers->in + used, num_rest);
        sock->ops->on_message(sock, buffers->in + LENGTH_SIZE, len);
        if (is_settled(sock)) {
            /* The peer may have asked meanwhile, which it does only once. */
            return sock->watch.fd < 0 || num_rest == 0 ||
                   hear(sock, rest, num_rest) == UMX_OK;
        }
        memmove(buffers->in, buffers->in + used, buffers->in_len - used);
        buffers->in_len -= used;
    }
    return true;
}

void
umi_socket_ping(umi_socket *sock)
{
    if (sock->watch.fd >= 0 && is_settled(sock) && !sock->is_asked) {
        sock->is_asked = send_byte(sock, BYTE_PING);
    }
}

/* True if the system has given the connection up because nothing came from the
 * peer's system, whatever it found on the way there. */
static bool
is_silence(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == EHOSTDOWN ||
           error == ENETUNREACH || error == ENETDOWN;
}

static umx_status
read_settled(umi_socket *sock)
{
    uint8_t bytes[NUM_BYTES];
    ssize_t n = recv(sock->watch.fd, bytes, sizeof(bytes), 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return UMX_OK;
    }
    if (n < 0) {
        sock->error = errno;
    }
    if (n <= 0) {
        return is_silence(sock->error) ? UMX_ERR_ENDPOINT_TIMEOUT :
                                         UMX_ERR_CONNECTION_RESET;
    }
    return hear(sock, bytes, (size_t)n);
}

static umx_status
read_in(umi_socket *sock)
{
    while (sock->watch.fd >= 0) {
        umi_socket_buffers *buffers = sock->buffers;
        ssize_t             n;

        if (is_settled(sock)) {
            return read_settled(sock);
        }
        n = recv(sock->watch.fd, buffers->in + buffers->in_len,
                 BUFFER_SIZE - buffers->in_len, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return UMX_OK;
        }
        if (n < 0) {
            sock->error = errno;
            return umi_status_from_errno(errno);
        }
        if (n == 0) {
            return UMX_ERR_CONNECTION_RESET;
        }
        buffers->in_len += (size_t)n;
        if (!take_messages(sock)) {
            return UMX_ERR_PROTOCOL;
        }
    }
    return UMX_OK;
}

static umx_status
end_connecting(umi_socket *sock)
{
    int       error = 0;
    socklen_t len   = sizeof(error);

    if (getsockopt(sock->watch.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
        error = errno;
    }
    if (error != 0) {
        sock->error = error;
        return umi_status_from_errno(error);
    }
    if (sock->ops->on_connected != NULL) {
        sock->ops->on_connected(sock);
    }
    sock->is_connecting = false;
    return UMX_OK;
}

static void
on_ready(umi_watch *watch, uint32_t events)
{
    umi_socket *sock   = umi_container_of(watch, umi_socket, watch);
    umx_status  status = UMX_OK;

    if (sock->is_connecting) {
        status = end_connecting(sock);
    }
    if (status == UMX_OK && (events & EPOLLOUT) && sock->buffers != NULL) {
        status = write_out(sock);
    }
    if (status == UMX_OK && (events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
        status = read_in(sock);
    }
    if (status != UMX_OK && sock->watch.fd >= 0) {
        umi_watch_change(sock->watches, &sock->watch, 0);
        sock->ops->on_end(sock, status);
    }
}

/* ---- addresses ----------------------------------------------------------
 */

bool
umi_sockaddr_is_valid(const struct sockaddr *addr, size_t len)
{
    if (addr == NULL || len < sizeof(addr->sa_family)) {
        return false;
    }
    return (addr->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) ||
           (addr->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6));
}

/* A listener of both families sees IPv4 peers as "::ffff:192.0.2.1". */
static void
unmap(struct sockaddr_storage *addr, socklen_t *len_p)
{
    const struct sockaddr_in6 in6 = *(const struct sockaddr_in6 *)addr;
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = in6.sin6_port};

    if (addr->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
        memcpy(&in4.sin_addr, &in6.sin6_addr.s6_addr[12], sizeof(in4.sin_addr));
        memset(addr, 0, sizeof(*addr));
        memcpy(addr, &in4, sizeof(in4));
        *len_p = sizeof(in4);
    }
}

static bool
is_loopback(const struct sockaddr *addr)
{
    const struct sockaddr_in  *in  = (const void *)addr;
    const struct sockaddr_in6 *in6 = (const void *)addr;

    return (addr->sa_family == AF_INET) ?
               (ntohl(in->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET :
               IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* True if both addresses are of this host, which talks to itself from the
 * address that it talks to. */
static bool
is_local(const struct sockaddr *own, const struct sockaddr *peer)
{
    const struct sockaddr_in  *own4  = (const void *)own;
    const struct sockaddr_in6 *own6  = (const void *)own;
    const struct sockaddr_in  *peer4 = (const void *)peer;
    const struct sockaddr_in6 *peer6 = (const void *)peer;

    if (is_loopback(own) || is_loopback(peer)) {
        return true;
    }
    if (own->sa_family != peer->sa_family) {
        return false;
    }
    return (own->sa_family == AF_INET) ?
               own4->sin_addr.s_addr == peer4->sin_addr.s_addr :
               IN6_ARE_ADDR_EQUAL(&own6->sin6_addr, &peer6->sin6_addr);
}

static void
note_local(umi_socket *sock, int fd, const struct sockaddr *addr,
           socklen_t addr_len)
{
    struct sockaddr_storage own, peer = {0};
    socklen_t               len = sizeof(own);

    memcpy(&peer, addr, addr_len < sizeof(peer) ? addr_len : sizeof(peer));
    unmap(&peer, &addr_len);
    if (getsockname(fd, (struct sockaddr *)&own, &len) == 0) {
        unmap(&own, &len);
        sock->is_local = is_local((struct sockaddr *)&own,
                                  (struct sockaddr *)&peer);
    }
}

/* ---- life ----------------------------------------------------------------
 */

static void
set_option(int fd, int option, int value)
{
    (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
}

void
umi_socket_limit(int fd, uint64_t keepalive_ns)
{
    enum {
        LONGEST = 32767 /* seconds that TCP_KEEPIDLE takes */
    };
    uint64_t ceiled = keepalive_ns / SECOND_NS +
                      (keepalive_ns % SECOND_NS != 0);
    int is_on    = ceiled > 0;
    int at_least = is_on ? UMI_KEEPALIVE_MIN : 0;
    int seconds  = (int)(ceiled < LONGEST ? ceiled : LONGEST);
    int idle, interval;

    seconds  = (seconds > at_least) ? seconds : at_least;
    idle     = (seconds + 3) / 4;
    interval = (seconds + 7) / 8;

    if (is_on) {
        set_option(fd, TCP_KEEPIDLE, idle);
        set_option(fd, TCP_KEEPINTVL, interval);
    }
    /* This limit ends the connection, whether anything is on its way or not,
     * and however many probes are unanswered. The last answer may be as old as
     * `idle` when the network goes. */
    set_option(fd, TCP_USER_TIMEOUT, seconds * 1250);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &is_on, sizeof(is_on));
}

void
umi_socket_keep_alive(umi_socket *sock, uint64_t keepalive_ns)
{
    if (sock->watch.fd >= 0) {
        umi_socket_limit(sock->watch.fd, keepalive_ns);
    }
}

uint64_t
umi_socket_silent_ns(const umi_socket *sock)
{
    struct tcp_info info      = {0};
    socklen_t       len       = sizeof(info);
    unsigned        limit_ms  = 0;
    socklen_t       limit_len = sizeof(limit_ms);

    (void)getsockopt(sock->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    (void)getsockopt(sock->watch.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms,
                     &limit_len);
    /* What has come later than the limit allows answered nothing. */
    return (info.tcpi_last_ack_recv > limit_ms ? info.tcpi_last_ack_recv :
                                                 limit_ms) *
           UINT64_C(1000000);
}

void
umi_socket_init(umi_socket *sock, umi_watches *watches,
                const umi_socket_ops *ops)
{
    memset(sock, 0, sizeof(*sock));
    sock->watch.fd = -1;
    sock->watches  = watches;
    sock->ops      = ops;
}

/* `fd` is the socket's, or closed. */
static umx_status
adopt(umi_socket *sock, int fd, uint32_t events)
{
    umx_status status;

    sock->buffers = malloc(sizeof(*sock->buffers));
    if (sock->buffers == NULL) {
        close(fd);
        return UMX_ERR_NO_MEMORY;
    }
    sock->buffers->in_len       = 0;
    sock->buffers->out_pos      = 0;
    sock->buffers->out_len      = 0;
    sock->buffers->is_finishing = false;
    sock->buffers->is_settling  = false;
    memset(&sock->buffers->peer, 0, sizeof(sock->buffers->peer));
    sock->error    = 0;
    sock->is_asked = false;
    set_option(fd, TCP_NODELAY, 1);
    status = umi_watch_start(sock->watches, &sock->watch, fd, events, on_ready);
    if (status != UMX_OK) {
        drop_buffers(sock);
        close(fd);
    }
    return status;
}

umx_status
umi_socket_take(umi_socket *sock, int fd)
{
    struct sockaddr_storage peer = {0};
    socklen_t               len  = sizeof(peer);
    umx_status              status;

    if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0) {
        note_local(sock, fd, (struct sockaddr *)&peer, len);
    }
    status = adopt(sock, fd, EPOLLIN);
    if (status == UMX_OK) {
        sock->buffers->peer = peer;
    }
    return status;
}

umx_status
umi_socket_connect(umi_socket *sock, const struct sockaddr *addr,
                   size_t addr_len, const struct sockaddr *local,
                   size_t local_len)
{
    umx_status result;
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    0);

    sock->error = 0;
    if (fd < 0) {
        sock->error = errno;
        return umi_status_from_errno(sock->error);
    }
    if ((local != NULL && bind(fd, local, (socklen_t)local_len) != 0) ||
        (connect(fd, addr, (socklen_t)addr_len) != 0 && errno != EINPROGRESS)) {
        sock->error = errno;
        close(fd);
        return umi_status_from_errno(sock->error);
    }
    note_local(sock, fd, addr, (socklen_t)addr_len);
    sock->is_connecting = true;
    result              = adopt(sock, fd, EPOLLIN | EPOLLOUT);
    if (result == UMX_OK) {
        memcpy(&sock->buffers->peer, addr, addr_len);
    }
    return result;
}

void
umi_socket_settle(umi_socket *sock)
{
    if (is_settled(sock)) {
        return;
    }
    if (sock->buffers->out_pos < sock->buffers->out_len) {
        sock->buffers->is_settling = true;
    } else {
        drop_buffers(sock);
    }
}

bool
umi_socket_is_hung_up(const umi_socket *sock)
{
    struct pollfd fd = {.fd = sock->watch.fd, .events = POLLRDHUP};

    return fd.fd >= 0 && poll(&fd, 1, 0) == 1 &&
           (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void
umi_socket_refuse(int fd, const void *data, size_t len)
{
    uint8_t    bytes[BUFFER_SIZE];
    umi_writer writer;

    umi_writer_init(&writer, bytes, sizeof(bytes));
    umi_write_u32(&writer, (uint32_t)len);
    umi_write_bytes(&writer, data, len);
    (void)!send(fd, bytes, LENGTH_SIZE + len, MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    /* Unread bytes would make close() a reset that overtakes the words. */
    (void)!recv(fd, bytes, sizeof(bytes), 0);
    close(fd);
}

bool
umi_socket_is_over(const umi_socket *sock)
{
    struct pollfd poll_fd = {.fd = sock->watch.fd, .events = POLLRDHUP};

    return poll(&poll_fd, 1, 0) > 0;
}

void
umi_socket_close(umi_socket *sock)
{
    int fd = sock->watch.fd;

    drop_buffers(sock);
    if (fd >= 0) {
        umi_watch_stop(sock->watches, &sock->watch);
        close(fd);
    }
}

umx_status
umi_socket_address(const umi_socket *sock, bool is_peer, struct sockaddr *addr,
                   size_t *len_p)
{
    struct sockaddr_storage found;
    socklen_t               len = sizeof(found);
    int                     rc;

    if (sock->watch.fd < 0) {
        return UMX_ERR_CLOSED;
    }
    rc = is_peer ?
             getpeername(sock->watch.fd, (struct sockaddr *)&found, &len) :
             getsockname(sock->watch.fd, (struct sockaddr *)&found, &len);
    if (rc != 0) {
        return (errno == ENOTCONN) ? UMX_ERR_UNSUPPORTED :
                                     umi_status_from_errno(errno);
    }
    unmap(&found, &len);
    if (*len_p < len) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(addr, &found, len);
    *len_p = len;
    return UMX_OK;
}

/* ---- for people ----------------------------------------------------------
 */

/* Write an address without its port. */
static void
write_host(const struct sockaddr *addr, char *text)
{
    const struct sockaddr_in  *in  = (const void *)addr;
    const struct sockaddr_in6 *in6 = (const void *)addr;
    const void                *bytes;

    bytes = (addr->sa_family == AF_INET) ? (const void *)&in->sin_addr :
                                           (const void *)&in6->sin6_addr;
    if (inet_ntop(addr->sa_family, bytes, text, UMI_SOCKADDR_TEXT) == NULL) {
        snprintf(text, UMI_SOCKADDR_TEXT, "?");
    }
}

void
umi_sockaddr_text(const struct sockaddr *addr, char *text)
{
    char host[UMI_SOCKADDR_TEXT];

    write_host(addr, host);
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)addr;

        snprintf(text, UMI_SOCKADDR_TEXT, "%.45s:%u", host,
                 ntohs(in->sin_port));
    } else if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)addr;

        snprintf(text, UMI_SOCKADDR_TEXT, "[%.45s]:%u", host,
                 ntohs(in6->sin6_port));
    } else {
        snprintf(text, UMI_SOCKADDR_TEXT, "an unknown address");
    }
}

/* Find the peer's address; false: it has none of the network. */
static bool
find_peer(const umi_socket *sock, struct sockaddr_storage *found)
{
    size_t    len    = sizeof(*found);
    socklen_t of_all = sizeof(*found);

    memset(found, 0, sizeof(*found));
    if (sock->buffers != NULL) {
        *found = sock->buffers->peer;
        unmap(found, &of_all);
    } else {
        (void)!umi_socket_address(sock, true, (struct sockaddr *)found, &len);
    }
    return found->ss_family == AF_INET || found->ss_family == AF_INET6;
}

bool
umi_socket_peer_text(const umi_socket *sock, char *text)
{
    struct sockaddr_storage found;
    bool                    is_found = find_peer(sock, &found);

    umi_sockaddr_text((struct sockaddr *)&found, text);
    return is_found;
}

bool
umi_socket_peer_host(const umi_socket *sock, char *text)
{
    struct sockaddr_storage found;

    if (!find_peer(sock, &found)) {
        return false;
    }
    write_host((struct sockaddr *)&found, text);
    return true;
}

bool
umi_socket_is_connected(const umi_socket *sock)
{
    struct sockaddr_storage found;
    size_t                  len = sizeof(found);

    return umi_socket_address(sock, true, (struct sockaddr *)&found, &len) ==
           UMX_OK;
}

size_t
umi_socket_unread(const umi_socket *sock, const uint8_t **data_p)
{
    if (sock->buffers == NULL) {
        return 0;
    }
    *data_p = sock->buffers->in;
    return sock->buffers->in_len;
}
