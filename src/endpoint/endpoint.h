/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.h: the state of a connection: struct umx_ep. Thread: the worker's
 * owner.
 *
 * Nothing here calls the user from inside UCX: what a callback of UCX decides
 * is written down, umi_ep_base_raise() asks for a visit, and
 * umi_endpoint_visit() acts on it after the progress burst. */
#ifndef UMI_ENDPOINT_H
#define UMI_ENDPOINT_H

#include <umx/control.h>

#include "codec/control.h"
#include "codec/ucx_address.h"
#include "worker/ep_base.h"
#include "worker/listener.h"
#include "worker/link.h"
#include "host/socket.h"
#include "worker/worker.h"
#include "bounce/bounce.h"
#include "lend/lend.h"
#include "mem/memtype.h"
#include "ops/am.h"
#include "ops/transfer.h"
#include "util/hash.h"
#include "util/table.h"

/* A number that is a macro, as text. */
#define UMI_TEXT_OF(number) UMI_TEXT_OF_(number)
#define UMI_TEXT_OF_(number) #number

struct umi_rma;

/* Things to do at the next visit. */
enum umi_endpoint_due {
    UMI_DUE_NOTIFY      = 1u << 0,  /* call on_state */
    UMI_DUE_ACCEPT      = 1u << 1,  /* hand it to its listener */
    UMI_DUE_CONTROL     = 1u << 2,  /* control messages are queued */
    UMI_DUE_CREDIT      = 1u << 3,  /* channels owe the peer a CREDIT */
    UMI_DUE_SEND        = 1u << 4,  /* credit came: waiting sends may go */
    UMI_DUE_CLOSE_COUNT = 1u << 5,  /* close_after_recv reached */
    UMI_DUE_GOODBYE     = 1u << 6,  /* all that GOODBYE names has arrived */
    UMI_DUE_ACK         = 1u << 7,  /* the ACK may be possible now */
    UMI_DUE_PROTOCOL    = 1u << 8,  /* the peer broke the protocol */
    UMI_DUE_HANDLERS    = 1u << 9,  /* messages wait for handlers */
    UMI_DUE_CONNECT     = 1u << 10, /* connect again, or to the next host */
    UMI_DUE_RECV        = 1u << 11, /* messages came that receives wait for */
    UMI_DUE_WITHDRAW    = 1u << 12, /* the peer has withdrawn messages */
    UMI_DUE_HANDSHAKE   = 1u << 13  /* the handshake, which waits, may go on */
};

/* Needed until the endpoint is open. */
typedef struct umi_handshake {
    umx_listener  *listener;       /* held; NULL on the connecting side */
    bool           has_hello;      /* connecting side: has had a CHALLENGE */
    bool           is_welcomed;    /* listening side: WELCOME sent */
    bool           is_checked;     /* UCX may map what `address` names */
    bool           is_waiting;     /* umi_queue_is_in_doubt() */
    bool           is_rejected;    /* listening side: the peer should go now */
    bool           is_peer_apart;  /* the peer says so: apart.c */
    uint32_t       peer_queues;    /* umi_config_queues() of the peer */
    bool           must_say_apart; /* connecting side: HELLO has to say so */
    umi_peer_claim claim;          /* who the peer says it is; of its ... */
    void          *address;        /* ... address; owned */
    uint8_t       *selected; /* devices of the own address; owned; or NULL */
    struct umi_configuration *configuration; /* held for the peer; or NULL */
    umi_ucx_address           own_address;   /* decoded, unless `is_checked` */
    umi_ucx_address           peers_address;
    struct umi_connect_hosts
                     *hosts; /* of umx_ep_connect_address(); owned; or NULL */
    struct umi_again *again; /* connect.c's; owned; or NULL */
    bool              has_local; /* the program has chosen the own address */
    /* Connecting side: the peer is open, and asked for an answer over UCX. */
    bool     is_knocking;
    bool     is_answered;
    unsigned num_arrivals; /* when it was asked */
    uint8_t  challenge[UMI_NONCE_SIZE];
    uint8_t  secret[UMI_SHA256_SIZE];     /* control.h: that of the two */
    uint8_t  hello_hash[UMI_SHA256_SIZE]; /* of their bytes */
    uint8_t  welcome_hash[UMI_SHA256_SIZE];
} umi_handshake;

/* What is asked of the rooms above. */
typedef enum umi_endpoint_question {
    UMI_HAS_WAITING,  /* are there sends that are not posted, ... */
    UMI_HAS_DEFERRED, /* ... and cancelled ones among them? */
    UMI_IS_BUSY,      /* is there anything else that a close waits for? */
    UMI_IS_RECEIVING, /* are bytes on their way for a receive that wants them?
                       */
    UMI_HAS_ARRIVED   /* has all come that the peer's GOODBYE names? */
} umi_endpoint_question;

/* What the rooms above do for a connection. There is one table, which
 * umx_worker_create() gives to umi_worker_hooks.ep. */
typedef struct umi_endpoint_hooks {
    size_t size; /* of what they keep behind each umx_ep */
    void (*init)(umx_ep *ep);
    void (*fini)(umx_ep *ep); /* the worker may be gone */
    /* The handshake is over: messages may flow. */
    void (*open)(umx_ep *ep);

    /* Do what one bit of umi_endpoint_due asks for: UMI_DUE_CREDIT, SEND, RECV,
     * HANDLERS, WITHDRAW; ACK: announced messages come into memory of ours, as
     * far as that is allowed. */
    void (*visit)(umx_ep *ep, unsigned due);
    /* Inside UCX's callbacks: a CREDIT or a WITHDRAW, or that a GOODBYE has
     * come. */
    void (*on_control)(umx_ep *ep, const umi_control *control);

    /* Tell, by channel, what has been sent and has to arrive. write_goodbye()
     * sends messages that are full; read_goodbye() is false if the endpoint has
     * failed over it. */
    void (*write_goodbye)(umx_ep *ep, umi_control *goodbye);
    bool (*read_goodbye)(umx_ep *ep, const umi_control *goodbye);

    bool (*ask)(const umx_ep *ep, umi_endpoint_question question);
    /* Add what waits to be read, and to be sent. */
    void (*count_waiting)(const umx_ep *ep, umx_ep_stats *stats);
    uint64_t (*unsent_bytes)(const umx_ep *ep);
    bool (*find_unread)(const umx_ep *ep, umx_unread *unread);

    void (*stop_reading)(umx_ep *ep); /* this side closes */
    void (*fail_sends)(umx_ep *ep, umx_status status);
    /* The peer has closed, and all that it has sent has arrived. */
    void (*peer_closed)(umx_ep *ep);
    /* `ep` has ended: settle everything with `status`. */
    void (*finish)(umx_ep *ep, umx_status status);
    /* Drop what is left: nobody reads it. */
    void (*discard)(umx_ep *ep);
} umi_endpoint_hooks;

/* How long a peer has given no sign of life. */
typedef struct umi_silence {
    umi_timer timer;
    unsigned  num_heard;  /* signs there were last time */
    unsigned  num_silent; /* quarters without any */
    uint64_t  heard_ns;   /* when there was a new one, or the count began */
} umi_silence;

/* The end of a close whose GOODBYE is sent. */
typedef struct umi_settle {
    umi_timer timer;
    unsigned  num_looks;
    unsigned  num_quiet; /* looks in a row that found nothing */
} umi_settle;

struct umx_ep {
    umi_ep_base               base; /* first: umi_ep_base_of() */
    umi_lend_ep               lend;
    umi_transfer_ep           transfers;
    umi_bounce_ep             bounce;
    const umi_endpoint_hooks *hooks;
    umx_ep_state              state;
    umx_status                error;
    unsigned                  due;
    umi_limits                peer_limits; /* at first */
    uint32_t        peer_channels; /* how many the peer accepts; 0: not known */
    umi_limits      own_limits;    /* what it grants the peer at first */
    umi_limits      most_limits;   /* and at most; `rndv` is not used */
    umx_ep_state_fn on_state;
    void           *arg;
    umi_handshake  *handshake;
    umi_socket      socket;  /* carries the handshake; its end is the peer's */
    umi_list        control; /* arrived control messages */
    unsigned        num_control;
    unsigned        num_answers;  /* ours, that UCX has not sent yet */
    umi_timer       timer;        /* handshake, then close */
    uint64_t        keepalive_ns; /* how long its host may be silent */
    umi_silence     heartbeat;
    umi_silence     deferred;     /* until cancelled operations have ended */
    unsigned        num_arrivals; /* over UCX; wraps */
    umi_retire      retire;
    umi_list        closers;       /* requests of umx_ep_close() */
    umi_list        drainers;      /* and of umx_ep_drain() */
    struct umi_rma *rma;           /* NULL until the first use */
    uint64_t        pending_bytes; /* of sends that are not complete */
    char           *reason;        /* NULL: none */
    const char     *protocol_error;
    char           *foreign;   /* such an error that names what came; or NULL */
    umi_list        queries;   /* what the peer has not answered */
    unsigned        num_asked; /* sent and not answered: given up, too */
    uint64_t        last_query;  /* token */
    umx_listener   *accepted_by; /* held; NULL on the connecting side */
    char           *info;        /* the peer's last INFO, or NULL */
    uint32_t        peer_pid;
    bool            shares_pids; /* `peer_pid` means that process here, too */
    const char  *apart; /* why there is no shared memory; NULL: UCX decides */
    uint32_t     peer_version;
    umx_ep_stats stats;
    umi_traffic *traffic;  /* of the peer's host, or `early`: traffic.c */
    umi_traffic  early;    /* what has come before the connection was open */
    uint64_t     begun_ns; /* when it was made */
    unsigned     ways;     /* bits: those that are logged */
    uint64_t     unsent_bytes;
    uint64_t     recv_count;
    uint64_t     close_after;   /* 0: never */
    unsigned     num_landing;   /* receives whose bytes are on their way */
    unsigned     num_announced; /* kept announcements nobody reads yet */
    unsigned     num_to_fetch;  /* messages that are `is_to_fetch` */
    bool         is_server;
    bool         is_dropped;     /* the user has given it back */
    bool         is_peer_closed; /* GOODBYE processed */
    bool         has_goodbye;    /* GOODBYE came, all parts */
    bool         is_goodbye_sent;
    bool         is_ack_sent;
    bool         is_last_look;  /* the deadline of its close has passed */
    bool         is_unanswered; /* it has closed without the peer's answer */
    umi_settle   settle;
    bool         is_closing; /* counted in worker->num_closing */
    uint64_t     close_deadline_ns;
    unsigned     attempt;         /* to connect; grows */
    uint64_t     begun;           /* ticks, if that is observed; else 0 */
    umi_node     untaken_node;    /* umx_listener.accepted, or
                                     umi_addressed.waiting */
    bool        is_ended_untaken; /* counted there */
    bool        is_layers;        /* `on_state` runs in the thread, too */
    bool        is_open_put_off;  /* `on_state` is to hear of it first */
    umi_put_off put_off;          /* of `on_state` */
    umi_put_off put_off_lost;     /* of `on_lost` of its operations */
};

/* umx_ep_reason(), with the lock. */
static inline const char *
umi_endpoint_reason(const umx_ep *ep)
{
    return (ep->reason != NULL) ? ep->reason : "";
}

static inline umx_ep *
umi_endpoint_of(umi_ep_base *base)
{
    return umi_container_of(base, umx_ep, base);
}

static inline umx_worker *
umi_endpoint_worker(const umx_ep *ep)
{
    return ep->base.worker;
}

/* True if messages may be taken from the network and read by the user. */
static inline bool
umi_endpoint_is_reading(const umx_ep *ep)
{
    return (ep->state == UMX_EP_OPEN || ep->state == UMX_EP_CONNECTING) &&
           !ep->is_dropped;
}

/* The endpoint of a number that came over the wire; NULL if it is none. */
static inline umx_ep *
umi_endpoint_find(const umx_worker *worker, uint64_t id)
{
    return umi_ids_get(&worker->eps_by_id, id); /* `base` comes first */
}

/* True if the user may read what has arrived; true if receives that wait may
 * have it. */
bool umi_endpoint_may_read(const umx_ep *ep);
bool umi_endpoint_reads_on(const umx_ep *ep);

/* Check a call of the user's: UMX_ERR_CLOSED once the worker is gone, and what
 * umi_worker_check() says. */
static inline umx_status
umi_endpoint_check(const umx_ep *ep)
{
    return (ep->base.worker == NULL) ? UMX_ERR_CLOSED :
                                       umi_worker_check(ep->base.worker);
}

/* Check a buffer for an operation that takes a layout. */
static inline umx_status
umi_endpoint_check_buffer(const umx_buffer *buf)
{
    umx_status status = umi_check_buffer(buf);

    return (status == UMX_OK) ? umi_memh_check(buf) : status;
}

/* Check a buffer for an operation that takes no layout. */
static inline umx_status
umi_endpoint_check_contiguous(const umx_buffer *buf)
{
    return (buf->layout != NULL) ? UMX_ERR_UNSUPPORTED :
                                   umi_endpoint_check_buffer(buf);
}

/* Choose the status with which an operation on `ep` ends when UCX reports
 * `status`: UCX tells that something broke, the endpoint knows why. */
umx_status umi_endpoint_end_status(const umx_ep *ep, umx_status status);

/* Tell why nothing can be sent; UMX_OK if it can. */
umx_status umi_endpoint_send_status(const umx_ep *ep);

/* Tell why nothing more can come; UMX_OK if it can. */
umx_status umi_endpoint_recv_status(const umx_ep *ep);

umx_status umi_endpoint_new(umx_worker *worker, const umx_window *window,
                            umx_ep **ep_p);

/* Go on to a state:
 *
 *   CONNECTING ---> OPEN ---> DRAINING
 *        |           |           |
 *        `-----------+-----------+---> CLOSED, FAILED
 */
void umi_endpoint_set_state(umx_ep *ep, umx_ep_state state);

/* Write down what is to be done, and ask for a visit. */
void umi_endpoint_due(umx_ep *ep, unsigned due);

/* What umi_worker_hooks.tell_ep leads to. */
void umi_endpoint_visit(umi_ep_base *base);
void umi_endpoint_engine_gone(umi_ep_base *base, const char *reason);
void umi_endpoint_go_on(umi_ep_base *base);

/* True if the handshake has to wait before this side says where it is: it is
 * not known whether the messages of a peer of this host would come. Later
 * umi_handshake_go_on() is called. */
bool umi_endpoint_must_wait(umx_ep *ep);
void umi_endpoint_abort(umi_ep_base *base);

/* Report that the peer sent what it may not. Safe inside UCX's callbacks. `why`
 * is static. */
void umi_endpoint_protocol_error(umx_ep *ep, const char *why);

/* Report that an announced message cannot be received: its sender has ended, or
 * has lied. Safe inside UCX's callbacks. */
void umi_endpoint_cannot_land(umx_ep *ep, umx_status status);

/* Report that there is no memory for a copy of what a cancelled operation sends
 * or receives. */
void umi_endpoint_cannot_copy(umx_ep *ep);

/* traffic.c: the connection is open: count for the peer's host from now on. */
void umi_endpoint_begin_traffic(umx_ep *ep);

/* `ep` ends: if it was never open, what has come counts for no host. */
void umi_endpoint_end_traffic(umx_ep *ep);

/* Record, where that is observed, that connecting has ended: with UMX_OK if the
 * endpoint is open. */
void umi_endpoint_observe_open(umx_ep *ep, umx_status status);

/* The end by failure or by force: give UCX's endpoint up, settle everything
 * with `status`. */
void umi_endpoint_finish(umx_ep *ep, umx_ep_state state, umx_status status);
/* Count the bytes of sends that are not complete. */
uint64_t umi_endpoint_unsent_bytes(const umx_ep *ep);
void     umi_endpoint_set_reason(umx_ep *ep, const char *text, size_t len);

/* Post a control message. Failure fails the endpoint. True: UCX has sent it,
 * before anything that it has not sent yet. */
bool umi_endpoint_send_control(umx_ep *ep, const umi_control *control);

/* wireup.c */
void umi_handshake_init(umx_ep *ep);
/* Say HELLO on a socket that is connecting, unless that has to wait. */
void umi_handshake_start(umx_ep *ep);
/* Go on with what has waited, if anything has. */
void umi_handshake_go_on(umx_ep *ep);
void umi_handshake_on_connection(umx_listener *listener, int fd);
/* Refuse a connection: there are too few descriptors. */
void umi_handshake_on_busy(int fd);
void umi_handshake_end(umx_ep *ep);

/* True if the peer has not answered over UCX, but has sent something that way.
 */
bool umi_handshake_is_heard(const umx_ep *ep);

/* Open the connection, whose peer has answered over UCX. */
void umi_handshake_answered(umx_ep *ep);
/* connect.c: connect again, or to the next host. */
void umi_connect_step(umx_ep *ep);
/* Write down, for people, why connecting fails, with the peer's address. */
void umi_handshake_explain(umx_ep *ep, umx_status status);

/* close.c */
/* `ep` is open; or connecting, then the close goes on once it is open. */
void umi_close_start(umx_ep *ep, uint64_t timeout_ns);
/* Go on with the close of `ep`, which was closed while it was connecting, and
 * is open now. */
void umi_close_resume(umx_ep *ep);
/* True if there is anything to deliver on `ep`, which is connecting. */
bool umi_close_is_needed(umx_ep *ep);
/* Close if as many messages have been received as close_after_recv says. */
void umi_close_check_count(umx_ep *ep);
/* Go on with a close: once all sends are posted, send GOODBYE. */
void umi_close_advance(umx_ep *ep);
void umi_close_on_goodbye(umx_ep *ep, const umi_control *control);
void umi_close_on_ack(umx_ep *ep);
/* Act on the end of a connection: UCX's error handler ran, or the socket has
 * ended. */
void umi_close_on_error(umx_ep *ep, umx_status status);
/* Check whether all that GOODBYE names has arrived; some of it has. */
void umi_close_check_arrived(umx_ep *ep);

/* A receive, for which this side's close may have waited, has its bytes. */
void umi_close_check_received(umx_ep *ep);
/* Act on the peer's close: all that GOODBYE names has arrived. */
void umi_close_peer_done(umx_ep *ep);
/* Send the ACK if nothing of the peer's needs its sender any more. */
void umi_close_try_ack(umx_ep *ep);

/* settle.c */
void umi_settle_init(umx_ep *ep);
/* `ep` begins to close, or has sent GOODBYE: look, after the time for an
 * answer, whether that is needed. */
void umi_settle_start(umx_ep *ep);
/* Write down, for people, what the close of `ep` has waited for in vain. */
void umi_settle_explain(umx_ep *ep);

/* query.c: questions to the peer */
void umi_query_send_waiting(umx_ep *ep);
/* Take an answer of the peer's; answer a question of the peer's. */
void umi_query_on_answer(umx_ep *ep, const umi_control *answer);
void umi_query_answer(umx_ep *ep, const umi_control *question);

/* Write what INFO says of us (info.c), as JSON in at most `size` bytes with the
 * terminator; its length. */
size_t umi_info_write(umx_ep *ep, char *text, size_t size);

/* drain.c */
void umi_drain_check(umx_ep *ep); /* sends have completed */

/* silence.c */
/* Count the signs of life that have come; the count wraps. */
unsigned umi_silence_signs(const umx_ep *ep);
/* Count from now on. */
void umi_silence_forget(const umx_ep *ep, umi_silence *silence);
/* Wait for a quarter of `limit_ns`. */
void umi_silence_wait(const umx_ep *ep, umi_silence *silence,
                      uint64_t limit_ns);
/* Count the quarter that is over; `is_alive`: there is another sign of life.
 * False: it was the last, and `ep` has failed. `who` is the peer, for people.
 */
bool umi_silence_count(umx_ep *ep, umi_silence *silence, bool is_alive,
                       const char *who);
/* Write down, for people, how long the peer has been silent, and what the
 * system calls it: `ep->socket.error`. */
void umi_silence_explain(umx_ep *ep, const char *who, uint64_t silent_ns);

/* heartbeat.c */
/* The token of the PING that ends a handshake: wireup.c. */
#define UMI_KNOCK 1u

void umi_heartbeat_init(umx_ep *ep);
void umi_heartbeat_start(umx_ep *ep);
void umi_heartbeat_on_knock(umx_ep *ep);

/* defer.c */
void umi_defer_init(umx_ep *ep);
/* A cancelled operation waits for the peer: see that it is alive. */
void umi_endpoint_defer(umx_ep *ep);

/* control_io.c */
/* Drop what has arrived and not been acted on. */
void umi_endpoint_control_drop(umx_ep *ep);
int  umi_endpoint_control_on_arrival(umx_worker           *worker,
                                     const umi_am_arrival *arrival);
void umi_endpoint_control_run(umx_ep *ep);

#endif
