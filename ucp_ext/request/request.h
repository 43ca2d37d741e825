/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h: the awaitable of one operation. */
#ifndef UCP_EXT_REQUEST_REQUEST_H
#define UCP_EXT_REQUEST_REQUEST_H

#include "buffer/buffer.h"
#include "event.h"
#include "state.h"

enum {
    AM_SMALL          = 64, /* bytes */
    MAX_FREE_REQUESTS = 256
};

typedef enum request_kind {
    REQUEST_SEND,
    REQUEST_TAG_SEND,
    REQUEST_PUT,
    REQUEST_GET,
    REQUEST_PUT_MANY,
    REQUEST_GET_MANY,
    REQUEST_PUT_SIGNAL,
    REQUEST_ATOMIC,
    REQUEST_AM_SEND,
    REQUEST_TAG_SEND_SYNC,
    REQUEST_STREAM_SEND,
    REQUEST_SEND_FRAMES,
    REQUEST_SEND_MESSAGE,
    REQUEST_RECV, /* up to here the result is None */
    REQUEST_RECV_INTO,
    REQUEST_TAG_RECV,
    REQUEST_TAG_RECV_INTO,
    REQUEST_TAG_WAIT,
    REQUEST_TAG_RECV_MESSAGE,
    REQUEST_TAG_MESSAGE_RECV,
    REQUEST_RECV_MESSAGE,
    REQUEST_MESSAGE_RECV,
    REQUEST_AM_RECV,
    REQUEST_AM_RECV_MESSAGE,
    REQUEST_STREAM_RECV,
    REQUEST_RECV_FRAMES,
    REQUEST_FLUSH,
    REQUEST_DRAIN,
    REQUEST_DRAIN_SENDER,
    REQUEST_CLOSE,
    REQUEST_PING,
    REQUEST_PEER_INFO,
    REQUEST_CLOSE_LISTENER,
    REQUEST_CONNECT,
    REQUEST_CLOSE_ALL,
    REQUEST_SEND_MANY,
    REQUEST_RECV_MANY,
    REQUEST_FETCH
} request_kind;

typedef enum request_state {
    REQUEST_PENDING,
    REQUEST_DONE,     /* status, result or exception tell how */
    REQUEST_CANCELLED /* the awaitable; the operation may live on */
} request_state;

typedef struct many_item {
    RequestObject *parent;
    umx_request   *op; /* NULL: not pending */
    umx_status     status;
    umx_recv_info  info;
    buffer_hold    hold;
} many_item;

typedef struct many {
    Py_ssize_t count;
    Py_ssize_t pending;
    Py_ssize_t lost; /* of these */
    bool       has_failed;
    many_item  items[];
} many;

/* What a *_MANY operation on a peer's memory moves. */
typedef struct rma_list {
    Py_ssize_t    count;
    size_t        len;   /* bytes of all */
    umx_rma_item *items; /* behind `holds` */
    buffer_hold   holds[];
} rma_list;

/* Where a message went, if to several. */
typedef struct sent {
    size_t      count;
    umx_ep    **eps;      /* behind `endpoints` */
    umx_status *statuses; /* behind these */
    PyObject   *endpoints[];
} sent;

struct RequestObject {
    PyObject_HEAD mod_state *st;
    WorkerObject            *worker;
    EndpointObject          *endpoint; /* or NULL */
    umx_request             *op;       /* pending in libumx, or NULL */
    event                    event;
    volatile bool            is_told; /* what umx_worker_spin() watches */
    uint8_t                  kind;
    bool                     is_settled;
    uint8_t                  state;
    uint8_t                  num_wakers; /* tasks whose wake-ups will call
                                            result() */
    bool is_deferred;   /* not posted yet: made in another thread */
    bool is_refused;    /* ... and awaited in a foreign loop */
    bool has_yielded;   /* itself, to a task */
    bool is_blocking;   /* _asyncio_future_blocking */
    bool is_taken;      /* a task has reset that: it adds its wake-up next */
    bool has_listeners; /* others than tasks' wake-ups are called, too */
    bool has_let_loop;  /* a bare None was yielded for fairness */
    bool is_handed_out;
    bool is_seen;    /* the exception has been handed out, ... */
    bool is_held;    /* ... a reference for the callbacks */
    bool can_unrecv; /* the message may go back to its queue */
    bool is_into;    /* RECV_FRAMES: the memory is the user's */
    bool is_making;  /* its result, which may run an allocator */
    union {
        uint32_t has_odd_end; /* any of these */
        struct {
            /* Dropped in a foreign thread: to be cancelled, ... */
            bool is_withdrawn;
            bool is_returning; /* ... or its bytes to be put back */
            bool is_landed;    /* given up, and received after all */
            bool is_orphan;    /* dropped; a reference is the operation's */
        };
    };
    uint16_t         channel; /* or the id of active messages */
    umx_status       status;
    umx_match        match;
    umx_recv_info    info;
    buffer_hold      hold;
    umx_ep          *ep;          /* CONNECT: until open */
    PyObject        *peer;        /* CONNECT: the address */
    umx_message     *message;     /* RECV_MESSAGE: until handed out */
    umx_tag_message *tag_message; /* TAG_RECV_MESSAGE: the same */
    PyObject        *header;      /* bytes in front of the message, or NULL */
    many            *many;
    PyObject        *thread; /* the name of the one that made it, if deferred */
    PyObject        *remote; /* a peer's memory: the RemoteObject, ... */
    rma_list        *list;
    struct frames_list *frames;
    sent               *sent;      /* SEND_MESSAGE: to several */
    PyObject           *allocator; /* RECV_FRAMES: the user's, or NULL */
    uint64_t            offset;
    umx_atomic          atomic;
    uint64_t            old; /* ... and what `atomic` found */
    uint64_t            ns;  /* CLOSE: timeout; PING: time until the answer */
    PyObject           *result;
    PyObject           *exception;
    PyObject           *cancel_message; /* of cancel(), or NULL */
    PyObject           *callback;       /* the usual one */
    PyObject           *context;
    PyObject      *more_callbacks; /* list of (callback, context) or NULL */
    PyObject      *low_level;      /* see request/callback.c, or NULL */
    RequestObject *next;           /* free, or of worker->closers */
    PyObject      *weakrefs;
    char           small[AM_SMALL]; /* AM_RECV: the bytes of a short message */
};

/* A pending request; NULL with an exception. */
RequestObject *request_new(WorkerObject *worker, EndpointObject *endpoint,
                           request_kind kind);

/* The value of a settled request, which is handed out by this; new reference,
 * or NULL with its exception in `*exc_p`, which is NULL if that failed. */
PyObject *request_take(RequestObject *req, PyObject **exc_p);

/* libumx, or the worker's list of calls, has the memory that it was lent: the
 * operation's part of the request lives on if the program drops it. */
static inline bool
request_is_in_flight(const RequestObject *req)
{
    return req->op != NULL || (req->many != NULL && req->many->pending != 0) ||
           req->ep != NULL;
}

static inline bool
request_is_channel_recv(const RequestObject *req)
{
    switch ((request_kind)req->kind) {
    case REQUEST_RECV:
    case REQUEST_RECV_INTO:
    case REQUEST_MESSAGE_RECV:
    case REQUEST_STREAM_RECV:
        return true;
    case REQUEST_AM_RECV:
        return req->message == NULL;
    case REQUEST_RECV_FRAMES:
        return req->result != NULL;
    default:
        return false;
    }
}

static inline bool
request_is_tag_recv(const RequestObject *req)
{
    return req->kind == REQUEST_TAG_RECV ||
           req->kind == REQUEST_TAG_RECV_INTO ||
           req->kind == REQUEST_TAG_MESSAGE_RECV;
}

/* Are the bytes of a whole message in the buffer? */
static inline bool
request_has_bytes(umx_status status)
{
    return status == UMX_OK || status == UMX_ERR_LENGTH_MISMATCH;
}

/* A message has come whose bytes it gets in a second step, once libumx has
 * returned? */
static inline bool
request_has_second_step(const RequestObject *req, umx_status status)
{
    if (status != UMX_OK || req->state != REQUEST_PENDING ||
        req->message == NULL || req->result != NULL) {
        return false;
    }
    return req->kind == REQUEST_RECV_FRAMES ||
           (req->kind == REQUEST_AM_RECV &&
            umx_message_data(req->message) == NULL);
}

/* Have its callbacks run when the worker next runs callbacks. */
void request_link_wake(RequestObject *req);

/* It has callbacks: it lives until they have run. */
void request_hold(RequestObject *req);

/* Visible to the collector from now on: it is part of something. */
void request_track(RequestObject *req);

/* Hold `buffers`, a sequence, for a *_MANY request. -1 with an exception. */
int request_hold_many(RequestObject *req, PyObject *buffers);

/* A list for req->list, with room for `count`; NULL with an exception. */
rma_list *request_new_list(Py_ssize_t count);

/* Hand the operation to libumx, or put it off in a foreign thread. Always
 * succeeds: failures are the request's. Returns `req`. */
PyObject *request_post(RequestObject *req);

/* What libumx returned for an operation that the caller has posted; as
 * request_post(). */
PyObject *request_posted(RequestObject *req, umx_status status);

/* It was handed out, but could not be made. */
void request_keep_unseen(RequestObject *req);

/* The operation is over. */
void request_settle(RequestObject *req, umx_status status);

/* A message that nobody took goes back to its queue. */
void request_return_message(RequestObject *req);

/* CONNECT: open, or not. */
void request_connected(RequestObject *req);

/* Hand `message` to libumx, to receive its bytes into req->hold, or
 * req->frames. */
void request_post_message(RequestObject *req, umx_message *message);

/* Drop the free list. */
void request_clear_free(mod_state *st);

extern PyType_Spec request_spec;

#endif
