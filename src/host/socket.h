/* SPDX-License-Identifier: BSD-3-Clause */
/* socket.h: a nonblocking TCP connection that carries messages of the
 * handshake, each behind its length (u32, little-endian). Once settled it
 * tells, by staying open, that the peer is there; and bytes ask (1) and answer
 * (2) whether it moves.
 *
 * Callbacks run from umi_watches_run(). They may close the socket.
 * Thread: the worker's owner. */
#ifndef UMI_SOCKET_H
#define UMI_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "host/status.h"
#include "host/watch.h"

typedef struct umi_socket umi_socket;

typedef struct umi_socket_ops {
    /* The socket is connected; nothing has been sent. NULL: never called. */
    void (*on_connected)(umi_socket *sock);
    /* A message; `data` is valid during the call. */
    void (*on_message)(umi_socket *sock, const void *data, size_t len);
    /* Tell whether a message begins with these bytes, `len` of them so far.
     * False: the peer speaks something else. */
    bool (*may_begin)(const void *data, size_t len);
    /* The socket has ended: nothing more will come. `status` says why: the
     * connection could not be made, or is over. The socket is still the owner's
     * to close. */
    void (*on_end)(umi_socket *sock, umx_status status);
} umi_socket_ops;

typedef struct umi_socket_buffers umi_socket_buffers;

struct umi_socket {
    umi_watch             watch;
    umi_watches          *watches; /* its worker's */
    const umi_socket_ops *ops;
    umi_socket_buffers   *buffers;   /* NULL once settled */
    unsigned              num_heard; /* signs of life once settled; wraps */
    int                   error;     /* errno of what ended it, or 0 */
    bool                  is_asked;  /* a question of ours is not answered */
    bool                  is_connecting;
    bool                  is_local; /* the peer is in our network namespace */
};

enum {
    UMI_SOCKET_MESSAGE_MAX = 16 * 1024
};

/* `fd` of a closed one is -1: a zeroed umi_socket must be initialised. */
void umi_socket_init(umi_socket *sock, umi_watches *watches,
                     const umi_socket_ops *ops);

/* Start connecting; messages may be sent at once. */
umx_status umi_socket_connect(umi_socket *sock, const struct sockaddr *addr,
                              size_t addr_len, const struct sockaddr *local,
                              size_t local_len);

/* Take over an accepted connection; closes `fd` on failure. */
umx_status umi_socket_take(umi_socket *sock, int fd);

/* Send a message, or keep it until the socket is connected. UMX_ERR_CLOSED:
 * nothing more goes out; UMX_ERR_OUT_OF_RANGE: there is no room for it. */
umx_status umi_socket_send(umi_socket *sock, const void *data, size_t len);

/* Take back all that was to be sent: in on_connected(). */
void umi_socket_unsend(umi_socket *sock);

/* Tell the peer, after what has been sent, that nothing more comes. */
void umi_socket_finish(umi_socket *sock);

/* Give the buffers up: no more messages go either way. */
void umi_socket_settle(umi_socket *sock);

/* Ask a settled socket's peer for a sign of life, unless it has been asked and
 * has not answered: what is sent once arrives, if anything does. */
void umi_socket_ping(umi_socket *sock);

enum {
    /* Seconds. The system probes once a second at most, and a full network
     * loses some probes. */
    UMI_KEEPALIVE_MIN = 4
};

/* Let the system look whether the peer's system is there, which need not wait
 * for its process. If nothing has come from it for `keepalive_ns`, rounded up
 * to seconds, to one and a half times that, the socket ends with
 * UMX_ERR_ENDPOINT_TIMEOUT. 0: the system does not look. */
void umi_socket_keep_alive(umi_socket *sock, uint64_t keepalive_ns);

/* The same for any socket of tcp. */
void umi_socket_limit(int fd, uint64_t keepalive_ns);

/* Tell how long the peer's system has answered nothing: the socket has ended
 * for that. */
uint64_t umi_socket_silent_ns(const umi_socket *sock);

/* Has the peer hung up, which the watch has not found yet? */
bool umi_socket_is_hung_up(const umi_socket *sock);

/* Say one thing to a connection that is not taken, and drop it. */
void umi_socket_refuse(int fd, const void *data, size_t len);

/* True if the peer has closed the socket, or died. */
bool umi_socket_is_over(const umi_socket *sock);

/* Idempotent. */
void umi_socket_close(umi_socket *sock);

/* The peer's or the own address, as umx_ep_peer_address(). */
umx_status umi_socket_address(const umi_socket *sock, bool is_peer,
                              struct sockaddr *addr, size_t *len_p);

/* An IPv4 or IPv6 address that is all there. */
bool umi_sockaddr_is_valid(const struct sockaddr *addr, size_t len);

enum {
    UMI_SOCKADDR_TEXT = 64 /* bytes of the longest, with the terminator */
};

/* "127.0.0.1:80", "[::1]:80". */
void umi_sockaddr_text(const struct sockaddr *addr, char *text);

/* Write the peer's address as text, true if it has one of the network; also
 * while the socket connects, and when
 * that has failed. */
bool umi_socket_peer_text(const umi_socket *sock, char *text);

/* Write the peer's address without the port: "127.0.0.1", "::1". */
bool umi_socket_peer_host(const umi_socket *sock, char *text);

/* Whether the connection stands, also if its event has not been handled yet. */
bool umi_socket_is_connected(const umi_socket *sock);

/* Give the bytes that have come and were not understood, before the socket is
 * closed. */
size_t umi_socket_unread(const umi_socket *sock, const uint8_t **data_p);

#endif
