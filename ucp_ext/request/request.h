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

/* What an operation is to its request. */
enum {
    OP_SEND    = 1 << 0, /* a failure that nobody asks for is reported */
    OP_RECV    = 1 << 1, /* takes a message: dropped while it waits, it warns */
    OP_CONNECT = 1 << 2, /* ... without one */
    OP_END     = 1 << 3, /* whatever happens, the peer is gone at the end */
    OP_PLAIN   = 1 << 4, /* one step, moves bytes and gives None */
    /* The bytes of a message may go back to its queue, ... */
    OP_UNRECV      = 1 << 5,
    OP_UNRECV_LATE = 1 << 6, /* also if the cancellation came too late */
    OP_EXACT       = 1 << 7, /* a shorter message is an error */
    /* libumx gives a message, ... */
    OP_MESSAGE       = 1 << 8,
    OP_MESSAGE_FIRST = 1 << 9, /* in the first step, if it is no short one */
    OP_TAG_MESSAGE   = 1 << 10,
    /* whose bytes are received in a second step, ... */
    OP_FETCH = 1 << 11, /* if they are with the sender */
    OP_LOOK  = 1 << 12, /* if start() says so */
    OP_OWN   = 1 << 13, /* into memory that nobody else has (not is_into) */
    OP_TIMED = 1 << 14, /* libumx tells the time it took */
    OP_BY_ID = 1 << 15, /* `channel` is an id of active messages */
    OP_ONCE  = 1 << 16, /* the result is handed out once, and not kept */
    OP_GIVES = 1 << 17, /* a callback of ucp._libs gets the result, ... */
    OP_WHOLE = 1 << 18  /* ... and an error if there are fewer bytes */
};

/* An operation: one in each file of op/, or a few that are alike. The request
 * calls what is not NULL. */
typedef struct op_type {
    const char *name; /* the method's */
    unsigned    flags;
    /* Hand it to libumx, as req->op. */
    umx_status (*post)(RequestObject *req, const umx_op_params *params);
    /* What is awaited; NULL: None. */
    PyObject *(*result)(RequestObject *req);
    /* The exception of one that failed; NULL: request_status_error(). */
    PyObject *(*error)(RequestObject *req);
    /* What is special about it, for the text of an error; "" for nothing. */
    void (*describe)(const RequestObject *req, umx_status status,
                     size_t capacity, char *text, size_t size);
    /* The bytes, all of them, return to their queue. */
    umx_status (*unrecv)(RequestObject *req);
    /* Of what is in libumx beside req->op: cancel it, ... */
    void (*cancel)(RequestObject *req);
    void (*told)(RequestObject *req); /* ... what it has told, ... */
    /* ... has it received what nobody has seen, and give that back. */
    bool (*has_unseen)(const RequestObject *req);
    void (*give_back)(RequestObject *req);
    /* The second step: true if the message needs none, or the request is
     * settled; is Python called in that; get memory, and post. */
    bool (*start)(RequestObject *req);
    bool (*runs_program)(const RequestObject *req);
    void (*fetch)(RequestObject *req);
    /* End of what was lent with `hold`; and of what is needed for a result.
     * Both may be called again. */
    void (*release)(RequestObject *req);
    void (*forget)(RequestObject *req);
    int (*traverse)(const RequestObject *req, visitproc visit, void *arg);
} op_type;

typedef enum request_state {
    REQUEST_PENDING,
    REQUEST_DONE,     /* status, result or exception tell how */
    REQUEST_CANCELLED /* the awaitable; the operation may live on */
} request_state;

struct RequestObject {
    PyObject_HEAD mod_state *st;
    WorkerObject            *worker;
    EndpointObject          *endpoint; /* or NULL */
    umx_request             *op;       /* pending in libumx, or NULL */
    const op_type           *type;
    event                    event;
    volatile bool            is_told; /* what umx_worker_spin() watches */
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
    bool is_into;    /* recv_frames(into=): the memory is the user's */
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
    uint16_t      channel; /* or the id of active messages */
    umx_status    status;
    umx_match     match;
    umx_recv_info info;
    buffer_hold   hold;
    umx_ep       *ep;      /* of connect(): until it is open */
    PyObject     *peer;    /* of connect(): the address */
    umx_message  *message; /* until it is handed out */
    umx_tag_message
             *tag_message; /* a message of UCX's tags: until handed out */
    PyObject *header;      /* bytes in front of the message, or NULL */
    PyObject *thread;      /* the name of the one that made it, if deferred */
    PyObject *remote;      /* the memory: a RemoteObject or MemoryObject */
    PyObject *allocator;   /* of recv_frames(), or NULL */
    uint32_t  num_pending; /* operations in libumx beside `op` */
    /* Of its op_type: what else was lent, and numbers. */
    union {
        void               *lent;
        struct many        *many;
        struct rma_list    *list;
        struct frames_list *frames;
        PyObject *signals; /* the memory of a signal: a RemoteObject */
    };
    struct sent *sent; /* of a message to several endpoints */
    union {
        char     small[AM_SMALL]; /* the bytes of a short active message */
        uint64_t ns;              /* a timeout; or the time that passed */
        struct {
            uint64_t   offset;
            uint64_t   old; /* what `atomic` found */
            umx_atomic atomic;
        };
        umx_condition condition; /* that is waited for */
    };
    PyObject      *result;
    PyObject      *exception;
    PyObject      *cancel_message; /* of cancel(), or NULL */
    PyObject      *callback;       /* the usual one */
    PyObject      *context;
    PyObject      *more_callbacks; /* list of (callback, context) or NULL */
    PyObject      *low_level;      /* see request/callback.c, or NULL */
    RequestObject *next;           /* free, or of worker->closers */
    PyObject      *weakrefs;
};

/* A pending request; NULL with an exception. */
RequestObject *request_new(WorkerObject *worker, EndpointObject *endpoint,
                           const op_type *type);

/* The value of a settled request, which is handed out by this; new reference,
 * or NULL with its exception in `*exc_p`, which is NULL if that failed. */
PyObject *request_take(RequestObject *req, PyObject **exc_p);

/* libumx, or the worker's list of calls, has the memory that it was lent: the
 * operation's part of the request lives on if the program drops it. */
static inline bool
request_is_in_flight(const RequestObject *req)
{
    return req->op != NULL || req->num_pending != 0;
}

/* Are the bytes of a whole message in the buffer? */
static inline bool
request_has_bytes(umx_status status)
{
    return status == UMX_OK || status == UMX_ERR_LENGTH_MISMATCH;
}

/* Do the lengths of message and buffer differ? */
static inline bool
request_is_length_error(umx_status status)
{
    return status == UMX_ERR_MESSAGE_TRUNCATED ||
           status == UMX_ERR_LENGTH_MISMATCH;
}

/* Does the message that it has received return to its queue as bytes? One with
 * two steps has a message before the second. */
static inline bool
request_holds_bytes(const RequestObject *req)
{
    return req->message == NULL || req->result != NULL;
}

/* A message has come whose bytes it gets in a second step, once libumx has
 * returned? */
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

/* Have its callbacks run when the worker next runs callbacks. */
void request_link_wake(RequestObject *req);

/* It has callbacks: it lives until they have run. */
void request_hold(RequestObject *req);

/* Visible to the collector from now on: it is part of something. */
void request_track(RequestObject *req);

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

/* Its second step has been posted: what libumx returned; `message` if it was
 * not taken over. */
void request_fetched(RequestObject *req, umx_message *message,
                     umx_status status);

/* The exception of `status`, which may be that of a part. */
PyObject *request_status_error(RequestObject *req, umx_status status,
                               const umx_recv_info *info, size_t capacity);

/* -1 with an exception. */
int request_set_size(PyObject *exc, PyObject *name, uint64_t value);

/* `exc`, or NULL, with `results`, whose reference it takes over. */
PyObject *request_with_results(RequestObject *req, PyObject *exc,
                               PyObject *results);

/* Results of op_type. */
PyObject *request_length(RequestObject *req);
PyObject *request_message(RequestObject *req);

/* op_type.traverse() of a buffer that is held. */
int request_visit_hold(const buffer_hold *hold, visitproc visit, void *arg);

/* Drop the free list. */
void request_clear_free(mod_state *st);

extern PyType_Spec request_spec;

#endif
