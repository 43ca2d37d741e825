/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h: the awaitable of one operation. */
#ifndef UCP_EXT_REQUEST_REQUEST_H
#define UCP_EXT_REQUEST_REQUEST_H

#include "buffer/buffer.h"
#include "base/event.h"
#include "base/state.h"

#include <assert.h>

enum {
    REQUEST_TAIL_SIZE = 24, /* bytes */
    MAX_FREE_REQUESTS = 256
};

/* Flags of an operation. */
enum {
    OP_SEND    = 1 << 0, /* report a failure that nobody asks for */
    OP_RECV    = 1 << 1, /* takes a message: warn if dropped while it waits */
    OP_CONNECT = 1 << 2, /* takes no message: warn all the same */
    OP_END     = 1 << 3, /* succeeds if the worker or the peer has gone */
    OP_PLAIN   = 1 << 4, /* one step, moves bytes and gives None */
    OP_UNRECV  = 1 << 5, /* op_type.unrecv() may return its message */
    /* ... also if the operation was cancelled too late to be stopped */
    OP_UNRECV_LATE = 1 << 6,
    OP_EXACT       = 1 << 7, /* a shorter message is an error */
    /* The bytes of the message are received in a second step ... */
    OP_FETCH = 1 << 8,  /* if the sender has them still */
    OP_LOOK  = 1 << 9,  /* if op_type.start() returns false */
    OP_OWN   = 1 << 10, /* receives into memory that only the request has */
    OP_BY_ID = 1 << 11, /* `channel` is an id of active messages */
    OP_ONCE  = 1 << 12, /* the result is handed out once, and not kept */
    OP_GIVES = 1 << 13, /* a callback of ucp._libs gets the result ... */
    OP_WHOLE = 1 << 14, /* ... and an error if there are fewer bytes */
    OP_PART  = 1 << 15, /* part of a whole that tells of its end itself */
    OP_STAYS = 1 << 16, /* a message that does not fit stays in its queue */
    /* request_function() makes of the value what the program gets, once that
     * is handed out: the message does not come again */
    OP_DECODES = 1 << 17,
    OP_BLOCK =
        1 << 18, /* bytes come into memory of its own, not that of `hold` */
    OP_BARE = 1 << 19 /* OP_PLAIN that has nothing but its buffer: no result(),
                         release(), forget(), clear() */
};

/* umx_request_cancel(), or umx_request_abandon(). */
typedef umx_status cancel_fn(umx_request *op);

/* The type of an operation: what a request calls to carry it out. Functions
 * that an operation does not need are NULL. */
typedef struct op_type {
    const char *name; /* of the method */
    unsigned    flags;
    /* Post the operation to libumx, which stores it in req->op. */
    umx_status (*post)(RequestObject *req, const umx_op_params *params);
    /* Store what libumx gives beside the status and, with OP_SEND or OP_RECV,
     * umx_request_info(). Inside a callback of libumx: event.c has it. */
    void (*note)(RequestObject *req, umx_request *op, umx_status status);
    /* Make the value that an await gives; NULL: None. */
    PyObject *(*result)(RequestObject *req);
    /* Make the exception of a failure; NULL: request_status_error(). */
    PyObject *(*error)(RequestObject *req);
    /* Write what the text of an exception is to say of this operation. */
    void (*describe)(const RequestObject *req, umx_status status,
                     size_t capacity, char *text, size_t size);
    /* The time is out: write with whom the operation is, as " from rank 1". If
     * it has been given up for that, return the ranks that had not come to it,
     * a tuple, or NULL with an exception; else NULL. */
    PyObject *(*late)(const RequestObject *req, char *text, size_t size);
    /* Return the received bytes to the queue that they came from. */
    umx_status (*unrecv)(RequestObject *req);
    /* Return req->message to its queue; NULL: by message_give_back(). */
    void (*return_message)(RequestObject *req);
    /* Cancel the num_pending operations that libumx has beside req->op, each by
     * `cancel_one`. False: the buffer of one of them stays lent. */
    bool (*cancel)(RequestObject *req, cancel_fn *cancel_one);
    /* May more operations follow? Then it cannot be awaited yet, and what
     * libumx has of it is cancelled if the program drops it. */
    bool (*is_open)(const RequestObject *req);
    /* Act on what libumx has told of them. */
    void (*told)(RequestObject *req);
    /* Have they received what nobody has seen? Then give it back. */
    bool (*has_unseen)(const RequestObject *req);
    void (*give_back)(RequestObject *req);
    /* Look at a message that has come; true: it needs no second step, or the
     * request is settled. */
    bool (*start)(RequestObject *req);
    /* Does the second step call the program, for memory? */
    bool (*runs_program)(const RequestObject *req);
    /* Begin the second step: get memory, and post the receive of the bytes. */
    void (*fetch)(RequestObject *req);
    /* Release the memory lent to libumx beside `hold`. May be called again. */
    void (*release)(RequestObject *req);
    /* Release what a result is made of. May be called again. */
    void (*forget)(RequestObject *req);
    /* Release what else the tail has, when the request goes. May be called
     * again. */
    void (*clear)(RequestObject *req);
    /* Visit the objects of the tail; those that were lent are visited only
     * while libumx does not have them: see request_visit_lent(). */
    int (*traverse)(const RequestObject *req, visitproc visit, void *arg);
} op_type;

/* The states of an awaitable. Its operation has a life of its own: `op` and
 * `num_pending` say whether libumx has it, and request/life.c what it does when
 * the awaitable has ended.
 *
 *   made in another thread --> DEFERRED ----cancel()-----------+
 *                                 | its loop takes it          |
 *                                 v                            v
 *   made ---------------------> PENDING -----cancel()-----> CANCELLED
 *                                 |    \                       ^  ^
 *                                 |     +-- cancel() while     |  |
 *                                 |         the buffer is lent |  |
 *                                 |             |              |  |
 *                    libumx has told of it      v              |  |
 *                                 |         CANCELLING --------+  |
 *                                 v                               |
 *                               DONE ---- its message is given back
 */
typedef enum request_state {
    REQUEST_DEFERRED,   /* not posted: its own loop does that */
    REQUEST_PENDING,    /* posted, or about to be */
    REQUEST_CANCELLING, /* ends as cancelled, when the buffer is free */
    REQUEST_DONE,       /* status, result or exception tell how */
    REQUEST_CANCELLED   /* an await raises CancelledError */
} request_state;

/* What few requests have; see request/internal.h. */
typedef struct request_rare request_rare;

struct RequestObject {
    PyObject_HEAD WorkerObject *worker;
    EndpointObject             *endpoint; /* or NULL */
    umx_request                *op;       /* pending in libumx, or NULL */
    const op_type              *type;
    event                       event;
    volatile bool is_told;    /* by libumx; umx_worker_spin() watches it */
    uint8_t       state;      /* a request_state */
    uint8_t       num_wakers; /* tasks whose wake-ups will call result() */
    union {
        uint8_t has_odd_end; /* any of these */
        struct {
            /* Ended in a foreign thread: the owner's thread is to ... */
            bool is_withdrawn : 1; /* cancel the operation */
            bool is_returning : 1; /* return the bytes to their queue */
            bool is_submitted : 1; /* ... and that thread has got it */
            bool is_landed : 1;    /* given up, and received after all */
            bool is_orphan : 1;    /* dropped; libumx has a reference */
        };
    };
    /* The await. */
    bool has_yielded : 1;  /* itself, to a task */
    bool is_blocking : 1;  /* _asyncio_future_blocking */
    bool is_taken : 1;     /* a task has reset that: it adds its wake-up next */
    bool has_let_loop : 1; /* a bare None was yielded for fairness */
    bool is_waiting : 1;   /* ... and has not come back yet */
    bool is_refused : 1;   /* REQUEST_DEFERRED, and awaited in a foreign loop */
    /* The result. */
    bool is_making : 1;  /* which may run code of the program's */
    bool is_decoded : 1; /* OP_DECODES: `result` is what the program gets */
    bool is_handed_out : 1;
    bool is_seen : 1;    /* the exception has been handed out */
    bool can_unrecv : 1; /* the message may go back to its queue */
    bool is_again : 1;   /* the message was withdrawn: post it again */
    /* The callbacks. */
    bool          has_listeners : 1; /* others than tasks' wake-ups */
    bool          is_held : 1;       /* by a reference of its own */
    uint16_t      channel;           /* or the id of active messages */
    umx_status    status;
    uint32_t      num_pending; /* operations in libumx beside `op` */
    umx_recv_info info;
    buffer_hold   hold;
    union { /* until it is handed out; or NULL */
        umx_message     *message;
        umx_tag_message *tag_message; /* of op/tag.c */
    };
    PyObject     *result;
    PyObject     *callback; /* the first one */
    PyObject     *context;  /* of `callback` */
    request_rare *rare;     /* or NULL */
    PyObject     *weakrefs;
    /* The operation's own: one of these, or a struct of its file. Zero in a
     * new request. */
    union {
        RequestObject *next;  /* free */
        umx_match      match; /* which messages it sends or receives */
        uint64_t       ns;    /* a timeout, or the time that has passed */
        char           tail[REQUEST_TAIL_SIZE];
    };
};
/* The head of an object has 16 bytes, without the GIL 32. */
_Static_assert(sizeof(RequestObject) <= 232 + sizeof(PyObject),
               "keep requests small");

/* Declare the tail of an operation: `struct TAIL {...}`, and get it. */
#define TAIL __attribute__((may_alias))
#define TAIL_OF(req, type)                                        \
    (__extension__({                                              \
        _Static_assert(sizeof(type) <= REQUEST_TAIL_SIZE, #type); \
        (type *)(uintptr_t)(req)->tail;                           \
    }))

/* Has the awaitable ended? */
static inline bool
request_is_settled(const RequestObject *req)
{
    return req->state >= REQUEST_DONE;
}

/* Does the drawing have an edge between two states? Who ends an awaitable in
 * steps may say so twice. */
static inline bool
request_may_become(request_state from, request_state to)
{
    switch (to) {
    case REQUEST_DEFERRED:
    case REQUEST_CANCELLING:
    case REQUEST_DONE:
        return from == REQUEST_PENDING;
    case REQUEST_PENDING:
        return from == REQUEST_DEFERRED;
    case REQUEST_CANCELLED:
        return true;
    }
    return false;
}

static inline void
request_set_state(RequestObject *req, request_state state)
{
    assert(request_may_become(req->state, state));
    req->state = state;
}

/* Make a pending request; NULL with an exception. */
RequestObject *request_new(WorkerObject *worker, EndpointObject *endpoint,
                           const op_type *type);

/* Hand out the value of a settled request: a new reference, or NULL with its
 * exception in `*exc_p`, which is NULL if that failed. */
PyObject *request_take(RequestObject *req, PyObject **exc_p);

/* request_take() that raises the exception. */
PyObject *request_take_or_raise(RequestObject *req);

/* Does libumx have the memory that it was lent? Then the operation's part of
 * the request lives on if the program drops the request. */
static inline bool
request_is_in_flight(const RequestObject *req)
{
    return req->op != NULL || req->num_pending != 0;
}

/* Are the bytes of a whole message in the buffer? Of a shorter one only with
 * UCX's own tags: else it has stayed in its queue. */
static inline bool
request_has_bytes(const RequestObject *req, umx_status status)
{
    return status == UMX_OK || (status == UMX_ERR_LENGTH_MISMATCH &&
                                (req->type->flags & OP_EXACT) != 0);
}

/* Do the lengths of message and buffer differ? */
static inline bool
request_is_length_error(umx_status status)
{
    return status == UMX_ERR_MESSAGE_TRUNCATED ||
           status == UMX_ERR_LENGTH_MISMATCH;
}

/* Has the request the bytes of its message? With two steps it has a message
 * until the second one begins. */
static inline bool
request_holds_bytes(const RequestObject *req)
{
    return req->message == NULL || req->result != NULL;
}

/* Has a message come whose bytes the request gets in a second step, once libumx
 * has returned? */
static inline bool
request_has_second_step(const RequestObject *req, umx_status status)
{
    unsigned flags = req->type->flags;

    if ((flags & (OP_FETCH | OP_LOOK)) == 0 || status != UMX_OK ||
        req->state != REQUEST_PENDING || req->message == NULL ||
        req->result != NULL) {
        return false;
    }
    return (flags & OP_LOOK) != 0 || umx_message_data(req->message) == NULL;
}

/* Have the callbacks run when the worker next runs callbacks. */
void request_link_wake(RequestObject *req);

/* Hold a request with callbacks until they have run. */
void request_hold(RequestObject *req);

/* Show the request to the collector: it may be part of a cycle. */
void request_track(RequestObject *req);

/* Hand the operation to libumx, or put it off in a foreign thread. Returns
 * `req`, whose failures are the request's. In a forked child an exception: then
 * `req` is gone. */
PyObject *request_post(RequestObject *req);

/* Note that the operation of a new request was done in the call of libumx that
 * began it, and that it holds no buffer. */
void request_end_in_call(RequestObject *req);

/* Make and post an operation without arguments. NULL with an exception. */
PyObject *request_begin(WorkerObject *worker, EndpointObject *endpoint,
                        const op_type *type);

/* Note what libumx returned for an operation that the caller has posted; as
 * request_post(). */
PyObject *request_posted(RequestObject *req, umx_status status);

/* Keep a function with which the request makes its result. -1 with an
 * exception. */
int request_set_function(RequestObject *req, PyObject *function);

/* Have the operation begin once the work of a stream is done: with an exception
 * -1, and what libumx is told. */
int request_set_stream(RequestObject *req, const buffer_stream *after);
umx_op_params request_params_after(const RequestObject *req,
                                   const umx_op_params *params);

/* That function, borrowed; or NULL. */
PyObject *request_function(const RequestObject *req);

/* End the request, and give back a message that it has got. Keeps exceptions.
 */
void request_give_up(RequestObject *req);

/* Fail the request with the exception that is set: its result could not be
 * made. The next receive gets the message. */
void request_fail_result(RequestObject *req);

/* Keep `exc`, whose reference it takes over, as the exception of a request. */
void request_set_exception(RequestObject *req, PyObject *exc);

/* Visit a buffer that was lent, unless libumx has it. */
static inline int
request_visit_lent(const RequestObject *req, const buffer_hold *hold,
                   visitproc visit, void *arg)
{
    return request_is_in_flight(req) ? 0 : buffer_visit(hold, visit, arg);
}

/* End the operation with `status`. */
void request_settle(RequestObject *req, umx_status status);

/* Return the message, if there is one, to its queue. */
void request_return_message(RequestObject *req);

/* Note what libumx returned for the second step; `message` is not NULL if it
 * was not taken over. */
void request_fetched(RequestObject *req, umx_message *message,
                     umx_status status);

/* Make the exception of `status`, which may be that of one of many messages. */
PyObject *request_status_error(RequestObject *req, umx_status status,
                               const umx_recv_info *info, size_t capacity);

/* Make the UCXTimeout of a request for which `timeout` seconds were waited.
 * `name`: of the call; NULL: the operation's. */
PyObject *request_timeout(const RequestObject *req, const char *name,
                          PyObject *timeout);

/* Set an attribute of an exception to a number. -1 with an exception. */
int request_set_size(PyObject *exc, PyObject *name, uint64_t value);

/* Set exc.results to `results`, whose reference is taken over; returns `exc`,
 * which may be NULL, or NULL. */
PyObject *request_with_results(RequestObject *req, PyObject *exc,
                               PyObject *results);

/* op_type.result() of an int, and of a Message. */
PyObject *request_length(RequestObject *req);
PyObject *request_message(RequestObject *req);

/* Free the requests that are kept for reuse. */
void request_clear_free(mod_state *st);

/* Make the type Request and those of its two kinds: kind.c. */
int request_init_types(PyObject *module, mod_state *st);

/* True for a request of either kind. */
bool request_check(const mod_state *st, PyObject *op);

#endif
