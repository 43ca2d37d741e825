/* SPDX-License-Identifier: BSD-3-Clause */
/* state.h: what the module owns, and the objects of its types. Thread: with
 * the GIL. */
#ifndef UCP_EXT_STATE_H
#define UCP_EXT_STATE_H

#include "compat.h"

#include "event.h"

/* class, bases (space separated), docstring; a base comes before what derives
 * from it. */
#define EXCEPTION_TABLE(X)                                                \
    X(UCXBaseException, "Exception", "Base of all errors of ucp.")        \
    X(UCXError, "UCXBaseException", "An operation failed.")               \
    X(UCXConfigError, "UCXError ValueError", "A setting is not valid.")   \
    X(UCXCloseError, "UCXBaseException", "The endpoint is closed.")       \
    X(UCXCanceled, "UCXBaseException", "The operation was cancelled.")    \
    X(UCXPeerClosed, "UCXCloseError UCXCanceled",                         \
      "The endpoint was closed while the operation was pending.")         \
    X(UCXConnectionReset, "UCXBaseException ConnectionResetError",        \
      "The peer went away.")                                              \
    X(UCXMsgTruncated, "UCXBaseException ValueError",                     \
      "The lengths of message and buffer differ.")                        \
    X(UCXNotConnected, "UCXBaseException ConnectionRefusedError",         \
      "Nobody listens at the address.")                                   \
    X(UCXUnreachable, "UCXBaseException OSError",                         \
      "No transport reaches the address.")                                \
    X(UCXTimeout, "UCXError TimeoutError", "The time ran out.")           \
    X(UCXRejected, "UCXError ConnectionRefusedError",                     \
      "The peer refused the connection.")                                 \
    X(UCXProtocolError, "UCXError", "The peer broke the protocol.")       \
    X(UCXVersionError, "UCXProtocolError",                                \
      "The peer speaks another version of the protocol.")                 \
    X(UCXAuthError, "UCXRejected", "The tokens of the two sides differ.") \
    X(UCXNoMemory, "UCXError MemoryError", "Out of memory.")              \
    X(UCXBusy, "UCXError OSError", "What is asked for is in use.")        \
    X(UCXInvalidKey, "UCXError ValueError",                               \
      "The key is damaged, of another process, or its memory is closed.") \
    X(UCXWorkerGone, "UCXNotConnected UCXError UCXCanceled",              \
      "Nobody is at the worker address.")                                 \
    X(UCXWarning, "UserWarning", "Warnings of ucp.")

typedef enum exception_index {
#define EXCEPTION_INDEX(name, bases, doc) EXC_##name,
    EXCEPTION_TABLE(EXCEPTION_INDEX)
#undef EXCEPTION_INDEX
    NUM_EXCEPTIONS
} exception_index;

/* Interned names. */
#define NAME_TABLE(X)           \
    X(_asyncio_future_blocking) \
    X(__array_interface__)      \
    X(__cuda_array_interface__) \
    X(__dlpack__)               \
    X(__dlpack_device__)        \
    X(__cuda_stream__)          \
    X(cuda_stream)              \
    X(ptr)                      \
    X(add_reader)               \
    X(remove_reader)            \
    X(call_soon)                \
    X(call_soon_threadsafe)     \
    X(call_later)               \
    X(call_exception_handler)   \
    X(cancel)                   \
    X(is_closed)                \
    X(status)                   \
    X(op)                       \
    X(peer)                     \
    X(length)                   \
    X(unsent_bytes)             \
    X(results)                  \
    X(strides)                  \
    X(dtype)                    \
    X(tag_send_nb)              \
    X(tag_recv_nb)              \
    X(am_send_nbx)              \
    X(am_recv_nb)               \
    X(stream_send_nb)           \
    X(stream_recv_nb)           \
    X(request)                  \
    X(_deliver)                 \
    X(allocate)                 \
    X(finish)                   \
    X(failed)                   \
    X(_wake)                    \
    X(_run)

typedef struct RequestObject RequestObject;

enum {
    AM_SMALL          = 64, /* bytes */
    MAX_FREE_REQUESTS = 256,
    FAIR_NS           = 200000 /* longest time without a turn of the loop */
};

typedef struct mod_state {
    PyTypeObject  *request_type;
    PyTypeObject  *context_type;
    PyTypeObject  *worker_type;
    PyTypeObject  *endpoint_type;
    PyTypeObject  *listener_type;
    PyTypeObject  *channel_type;
    PyTypeObject  *message_type;
    PyTypeObject  *array_type;
    PyTypeObject  *memory_type;
    PyTypeObject  *remote_type;
    PyTypeObject  *pool_type;
    PyTypeObject  *pool_buffer_type;
    PyTypeObject  *loan_type;
    PyTypeObject  *tag_message_type;
    PyTypeObject  *address_type;
    PyTypeObject  *message_sender_type;
    PyTypeObject  *message_listener_type;
    PyTypeObject  *message_receiver_type;
    PyObject      *any; /* the sentinel ANY */
    PyObject      *exceptions[NUM_EXCEPTIONS];
    PyObject      *cancelled_error; /* asyncio's */
    PyObject      *invalid_state_error;
    PyObject      *context_kwname; /* ("context",) */
    PyObject      *stop_iteration; /* cached, see request/request.c */
    PyObject      *log_handler;
    RequestObject *free_requests;
    unsigned       num_free_requests;
    uint64_t       fair_ticks; /* FAIR_NS in compat_ticks() */
    int            numpy;      /* 0: not looked yet, 1: its API is loaded */
    PyObject      *names[64];
    /* alive */
    size_t num_requests;
    size_t num_contexts;
    size_t num_workers;
    size_t num_endpoints;
    size_t num_listeners;
    size_t num_messages;
    size_t num_memories;
    size_t num_remotes;
    size_t num_loans;
} mod_state;

enum name_index {
#define NAME_INDEX(name) NAME_##name,
    NAME_TABLE(NAME_INDEX)
#undef NAME_INDEX
    NUM_NAMES
};
_Static_assert(NUM_NAMES <= 64, "mod_state.names");

#define NAME(st, name) ((st)->names[NAME_##name])

extern PyModuleDef ucp_ext_module;

/* The state, from a type that may be a subclass; NULL with an exception. */
static inline mod_state *
state_of_type(PyTypeObject *type)
{
    PyObject *module = PyType_GetModuleByDef(type, &ucp_ext_module);

    return (module == NULL) ? NULL : (mod_state *)PyModule_GetState(module);
}

/* ---- objects -------------------------------------------------------------
 */

/* What ucp._libs may do under a context; UCX's bits. */
enum {
    FEATURE_TAG    = 1 << 0,
    FEATURE_RMA    = 1 << 1,
    FEATURE_STREAM = 1 << 5,
    FEATURE_AM     = 1 << 6
};

typedef struct ContextObject {
    PyObject_HEAD mod_state *st;
    umx_context             *umx;
    unsigned                 features;
} ContextObject;

typedef struct WorkerObject WorkerObject;

/* A Python call to make once libumx has returned. */
typedef struct call {
    event         event;
    WorkerObject *worker;
    PyObject     *func;
    PyObject     *arg; /* or NULL */
} call;

/* The function for the active messages of one id. It stays, without a function,
 * until the worker goes. */
typedef struct am_handler {
    event              event;
    struct am_handler *next;   /* of worker->am_handlers */
    WorkerObject      *worker; /* borrowed */
    PyObject          *func;   /* or NULL */
    uint16_t           id;
} am_handler;

struct WorkerObject {
    PyObject_HEAD mod_state *st;
    umx_worker              *umx; /* NULL once closed */
    ContextObject           *context;
    uintptr_t                thread; /* the owner's compat_thread_id(); 0 in
                                        a forked child */
    PyObject     *loop;              /* or NULL */
    PyTypeObject *endpoint_class;
    PyTypeObject *listener_class;
    PyObject     *call_soon;  /* loop.call_soon */
    PyObject     *drain_call; /* self._drain, for call_soon */
    PyObject     *timer;      /* TimerHandle or NULL */
    uint64_t      timer_ns;   /* deadline the timer was set for; 0: none */
    uint64_t      last_loop;  /* ticks when the loop last had its turn */
    unsigned      inline_count;
    bool          in_callback; /* called by the loop: no task is running */
    bool          is_drain_scheduled;
    bool          is_shutting;
    PyObject     *raised;        /* KeyboardInterrupt or SystemExit, see
                                    worker_raise_kept() */
    event_list     told;         /* by libumx; see event.h */
    event_list     wakes;        /* requests whose callbacks are to run */
    event_list     calls;        /* other calls into the program */
    RequestObject *closers;      /* of close_all() */
    size_t         num_ended;    /* callbacks told that their endpoint ended */
    event          addressed;    /* there is something to take */
    PyObject      *on_addressed; /* or NULL */
    am_handler    *am_handlers;
    PyObject      *am_host_allocator; /* or NULL */
    PyObject      *am_device_allocator;
    /* worker/thread.c */
    uintptr_t helper;          /* compat_thread_id() of it, or 0 */
    int       wake_fd;         /* or -1: not shared */
    bool      is_stop_due;     /* the helper is to end */
    bool      is_woken;        /* wake_fd is readable */
    uint64_t  helper_deadline; /* of its sleep */
    PyObject *weakrefs;
};

typedef struct EndpointObject {
    PyObject_HEAD WorkerObject *worker;
    umx_ep   *umx; /* NULL once the worker is closed and it is dropped */
    event     event;
    bool      has_opened; /* told, the addresses are to be read */
    bool      has_ended;  /* told, on_close is to be called */
    PyObject *peer;       /* address tuple or None */
    PyObject *local;
    PyObject *on_close;
    uint64_t  high; /* limits of drain(), bytes */
    uint64_t  low;
    PyObject *weakrefs;
} EndpointObject;

typedef struct ListenerObject {
    PyObject_HEAD WorkerObject *worker;
    umx_listener               *umx; /* NULL once closed */
    event                       event;
    bool                        is_remote_closed; /* told */
    PyObject                   *on_accept;
    PyObject                   *on_remote_close; /* NULL: not allowed */
    PyObject                   *host;
    int                         port;
    bool                        is_dual; /* of IPv4 and IPv6 */
    PyObject                   *weakrefs;
} ListenerObject;

typedef struct ChannelObject {
    PyObject_HEAD EndpointObject *endpoint;
    uint16_t                      number;
} ChannelObject;

typedef struct MessageObject {
    PyObject_HEAD EndpointObject *endpoint;
    umx_message                  *umx; /* NULL once received */
    umx_recv_info                 info;
    bool       is_consumed; /* dropped, it does not return to its queue */
    Py_ssize_t num_views;   /* exports of its bytes */
    PyObject  *header;      /* bytes, once asked for */
} MessageObject;

typedef struct MemoryObject {
    PyObject_HEAD mod_state *st;
    ContextObject           *context;
    umx_memh                *umx;  /* NULL once closed and out of use */
    struct memory_loan      *loan; /* of a registered buffer; libumx's */
    Py_ssize_t               exports;
    bool                     is_readonly;
    bool                     is_closed;
    PyObject                *weakrefs;
} MemoryObject;

typedef struct MessageSenderObject {
    PyObject_HEAD WorkerObject *worker;
    umx_message_sender         *umx; /* NULL once closed */
    PyObject                   *weakrefs;
} MessageSenderObject;

typedef struct MessageReceiverObject {
    PyObject_HEAD PyObject *metadata;
    PyObject               *allocator; /* or NULL: bytearray */
    PyObject               *result;    /* or NULL */
    PyObject               *error;     /* the same */
    PyObject               *waiters;   /* list of futures; or NULL, or None */
} MessageReceiverObject;

typedef struct MessageListenerObject {
    PyObject_HEAD EndpointObject *endpoint;
    WorkerObject                 *worker;
    event                         event;
    umx_message_listener         *umx; /* NULL once it is over */
    PyObject                     *route;
    PyObject                     *on_end;
    MessageReceiverObject        *receiver;     /* of the message that comes */
    PyObject                     *exception;    /* why there is no memory */
    PyObject                     *buffers;      /* list of what it gave ... */
    struct frames_list           *frames;       /* ... held */
    bool                          is_scheduled; /* _run() */
    bool                          is_running;
    bool                          is_ended;
    bool is_landed; /* told, nobody waits for the bytes any more */
} MessageListenerObject;

/* ---- kinds of memory (buffer/memory_kind.c)
 * --------------------------------------
 */

typedef struct memory_kind memory_kind;

/* NULL with an exception: there is none of that name. */
const memory_kind *memory_kind_find(const char *name);

/* `device` None: the current one. -1 with an exception. */
int memory_kind_alloc(mod_state *st, umx_context *context,
                      const memory_kind *kind, PyObject *device, size_t len,
                      umx_memh **memh_p);

/* The interfaces of a piece of memory; AttributeError if that has none. */
PyObject *memory_array_interface(umx_memtype memtype, const void *data,
                                 size_t len, bool is_readonly);
PyObject *memory_cuda_interface(umx_memtype memtype, const void *data,
                                size_t len, bool is_readonly);

/* BufferError if the CPU cannot reach it. */
int memory_check_host(umx_memtype memtype);

/* types/memh.c: UCXError if it is closed. */
int memory_check_open(PyObject *op);

/* Somebody sees the memory: it stays when it is closed. */
void memory_begin_export(PyObject *op);
void memory_end_export(PyObject *op);

/* buffer/dlpack_export.c */
extern const char memory_dlpack_doc[], memory_dlpack_device_doc[];
PyObject         *memory_dlpack(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject         *memory_dlpack_device(PyObject *op, PyObject *ignored);

/* Memory for `count` buffers, registered as one. */
typedef struct PoolObject {
    PyObject_HEAD mod_state *st;
    umx_memh                *memh; /* NULL once closed and all are back */
    size_t                   nbytes;
    size_t                   stride; /* from one to the next */
    uint32_t                 count;
    uint32_t                 num_free;
    uint32_t *free;    /* their numbers; the one used last is last */
    PyObject *waiters; /* list of futures, the first is next */
    bool      is_closed;
    bool      is_serving;
    PyObject *weakrefs;
} PoolObject;

/* One buffer of a pool is in use, as long as this lives: the PoolBuffer and
 * operations hold it. */
typedef struct LoanObject {
    PyObject_HEAD PoolObject *pool;
    uint32_t                  number;
} LoanObject;

/* What the user has of it. */
typedef struct PoolBufferObject {
    PyObject_HEAD LoanObject *loan; /* NULL once released and out of use */
    Py_ssize_t                exports;
    bool                      is_released;
    bool      is_address_known; /* there may be views that are no exports */
    PyObject *weakrefs;
} PoolBufferObject;

typedef struct RemoteObject {
    PyObject_HEAD EndpointObject *endpoint;
    umx_rkey                     *umx;
    uint64_t                      nbytes;
    bool                          is_closed;
} RemoteObject;

typedef struct TagMessageObject {
    PyObject_HEAD WorkerObject *worker;
    umx_tag_message            *umx; /* NULL once received */
    umx_recv_info               info;
} TagMessageObject;

/* ---- buffers (buffer/buffer.c)
 * --------------------------------------------------
 */

/* An object's memory, held: the export, or the object itself. */
typedef struct buffer_hold {
    umx_buffer buf;
    PyObject  *owner; /* or NULL */
    Py_buffer  view;  /* view.obj NULL: no export */
} buffer_hold;

/* Memory of the program's that is registered. */
typedef struct memory_loan {
    struct memory_loan *next; /* of those that libumx has given back */
    buffer_hold         hold;
} memory_loan;

/* Release what libumx has given back. */
void memory_release_freed(void);

/* -1 with an exception that names what was given. */
int buffer_acquire(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold);

/* The layout of an object's memory. */
typedef struct buffer_layout {
    PyObject  *obj; /* whose memory it is; borrowed, or NULL */
    Py_ssize_t itemsize;
    int        ndim;
    bool       is_readonly;
    bool       is_c_contiguous;
    bool       is_f_contiguous;
    uintptr_t  stream; /* of CUDA, whose work comes first; 0: none */
    Py_ssize_t nitems; /* of what is described by its object */
    Py_ssize_t shape[PyBUF_MAX_NDIM];
    Py_ssize_t strides[PyBUF_MAX_NDIM];
} buffer_layout;

/* By the buffer protocol. */
int buffer_acquire_exporter(PyObject *obj, bool is_writable, buffer_hold *hold);

/* Hold `obj`, whose memory that is. */
static inline void
buffer_hold_object(buffer_hold *hold, PyObject *obj, void *data, size_t len,
                   umx_memtype memtype)
{
    hold->owner    = Py_NewRef(obj);
    hold->view.obj = NULL;
    hold->buf      = (umx_buffer){.data = data, .len = len, .memtype = memtype};
}

/* The strides of C order; where there is no item they mean nothing. */
void buffer_fill_strides(buffer_layout *layout);
void buffer_check_order(buffer_layout *layout);

/* What `obj` says of its memory (buffer/interface.c, buffer/dlpack.c). 1; 0: it
 * does not say; -1 with an exception. Memory with gaps is held, too. */
int interface_acquire(mod_state *st, PyObject *obj, bool is_writable,
                      buffer_hold *hold, buffer_layout *layout);
int dlpack_acquire(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold, buffer_layout *layout);

/* buffer_acquire() for reading that takes any strides. */
int buffer_describe(mod_state *st, PyObject *obj, buffer_hold *hold,
                    buffer_layout *layout);

enum {
    DEVICE_LEGACY_STREAM = 1
};

/* What `obj`, which says that it is in device memory, has given: is it there?
 * Then wait for `stream`; 0: none. Sets the memory's type. */
int device_settle(PyObject *obj, uintptr_t stream, buffer_hold *hold);

/* A number, or an object of CUDA Python, CuPy or torch. */
int device_parse_stream(mod_state *st, PyObject *obj, uintptr_t *stream_p);

/* `stream=` of an operation; NULL, None: nothing to wait for. */
int device_wait(mod_state *st, PyObject *stream, const buffer_hold *hold);

/* Sizes as a tuple. */
PyObject *buffer_sizes(int ndim, const Py_ssize_t *sizes);

/* buffer_acquire() that takes host memory with gaps, too. */
int buffer_acquire_strided(mod_state *st, PyObject *obj, bool is_writable,
                           buffer_hold *hold);

static inline void
buffer_release(buffer_hold *hold)
{
    if (hold->view.obj != NULL) {
        PyBuffer_Release(&hold->view);
    }
    if (UNLIKELY(hold->buf.layout != NULL)) {
        PyMem_Free((void *)(uintptr_t)hold->buf.layout);
        hold->buf.layout = NULL;
    }
    Py_CLEAR(hold->owner);
}

/* The memory of an Array (types/array.c), as buffer_acquire(). */
int array_acquire(PyObject *op, bool is_writable, buffer_hold *hold);

/* The same, of any strides. */
void array_describe(PyObject *op, buffer_hold *hold, buffer_layout *layout);

int buffer_refuse_readonly(PyObject *obj);
int buffer_refuse_strides(int ndim, const Py_ssize_t *strides,
                          Py_ssize_t itemsize);

/* ---- registered memory (buffer/registered.c)
 * ------------------------------------
 */

/* `hold` has memory that `base` exports: a Memory, a PoolBuffer, or a
 * memoryview of these? Then it names the registration, too. */
void registered_find(mod_state *st, PyObject *base, buffer_hold *hold);

/* Is it a Memory or PoolBuffer that the CPU cannot reach? */
bool registered_is_on_device(mod_state *st, PyObject *exporter);

/* Is it a Memory? */
bool memory_check(PyObject *exporter);

/* ---- pools (types/pool.c, types/loan.c, types/pool_buffer.c)
 * -----------------
 */

/* Takes over buffer `number`. NULL with an exception: it has not. */
LoanObject *loan_new(PoolObject *pool, uint32_t number);

/* A loan is over: the next one may have its buffer. */
void pool_give_back(PoolObject *pool, uint32_t number);

static inline char *
loan_data(const LoanObject *loan)
{
    const PoolObject *pool = loan->pool;

    return (char *)umx_memh_buffer(pool->memh)->data +
           loan->number * pool->stride;
}

/* Takes over `loan`. */
PyObject *pool_buffer_new(mod_state *st, LoanObject *loan);

/* As buffer_acquire(); the operation holds the loan. */
int pool_buffer_acquire(PyObject *op, buffer_hold *hold);

/* ---- arguments (args.c) --------------------------------------------------
 */

/* Fill `values[n]` from FASTCALL arguments, in CPython's wording of errors;
 * borrowed, NULL where absent. The first `required` must be there; from
 * `num_positional` on keyword-only. */
int args_parse(const char *name, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, const char *const *keywords, int n,
               int num_positional, int required, PyObject **values);

/* The items of a sequence, as a tuple of references: looking at one item may
 * run code of the program's that changes the sequence. `expected` is the error
 * for what cannot be iterated over. */
PyObject *args_items(PyObject *sequence, const char *expected);

/* None, ANY, or what is hashable, as a match. */
int args_tag(mod_state *st, PyObject *tag, umx_match *match);

/* An int of 64 bits, or what has __index__. */
int args_mask(PyObject *mask, uint64_t *value_p);

/* An int of 64 bits, or what has __index__; `name` is for errors. */
int args_raw_tag(PyObject *tag, const char *name, uint64_t *value_p);

/* Seconds or None (`fallback_ns`) as nanoseconds. */
int args_timeout(PyObject *seconds, uint64_t fallback_ns, uint64_t *ns_p);

/* ---- errors (errors.c) ---------------------------------------------------
 */

int errors_init(PyObject *module, mod_state *st);

/* A new exception for `status`; `op` and `detail` may be NULL. */
PyObject *errors_new(mod_state *st, umx_status status, const char *op,
                     const char *detail);

/* Where something failed: "connect to 192.0.2.1:80". */
typedef struct errors_place {
    const char *preposition;
    PyObject   *address; /* borrowed; a socket address */
    int         error;   /* the system's number, or 0 */
} errors_place;

/* A new exception that names the place; its `errno` and `peer` are set. */
PyObject *errors_new_at(mod_state *st, umx_status status, const char *op,
                        const errors_place *place, const char *detail);

/* Raise an exception that was made, and drop it; returns NULL. */
PyObject *errors_set(PyObject *exc);

/* Raise it; returns NULL. */
PyObject *errors_raise(mod_state *st, umx_status status, const char *op,
                       const char *detail);

/* ---- addresses (types/listener.c) -----------------------------------------
 */

struct sockaddr_storage;
int       sockaddr_parse(PyObject *tuple, struct sockaddr_storage *addr,
                         size_t *len_p);
PyObject *sockaddr_build(const struct sockaddr_storage *addr);

/* ---- requests (request/request.c) -------------------------------------------
 */

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

/* The memory of frames. */
typedef struct frames_list {
    Py_ssize_t  count;
    Py_ssize_t  num_held; /* of `holds` */
    umx_buffer *buffers;  /* behind `holds` */
    buffer_hold holds[];
} frames_list;

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
    bool is_deferred;  /* not posted yet: made in another thread */
    bool is_refused;   /* ... and awaited in a foreign loop */
    bool has_yielded;  /* itself, to a task */
    bool is_blocking;  /* _asyncio_future_blocking */
    bool has_let_loop; /* a bare None was yielded for fairness */
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
    frames_list     *frames;
    sent            *sent;      /* SEND_MESSAGE: to several */
    PyObject        *allocator; /* RECV_FRAMES: the user's, or NULL */
    uint64_t         offset;
    umx_atomic       atomic;
    uint64_t         old; /* ... and what `atomic` found */
    uint64_t         ns;  /* CLOSE: timeout; PING: time until the answer */
    PyObject        *result;
    PyObject        *exception;
    PyObject        *cancel_message; /* of cancel(), or NULL */
    PyObject        *callback;       /* the usual one */
    PyObject        *context;
    PyObject        *more_callbacks; /* list of (callback, context) or NULL */
    PyObject        *low_level;      /* see request/callback.c, or NULL */
    RequestObject   *next;           /* free, or of worker->closers */
    PyObject        *weakrefs;
    char small[AM_SMALL]; /* AM_RECV: the bytes of a short message */
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

/* ---- low-level operations (request/callback.c)
 * ------------------------------------
 */

/* Tell the callback of a settled request. */
void callback_run(RequestObject *req);

/* The name that the program gave the operation. */
const char *callback_name(const RequestObject *req);

extern PyMethodDef callback_methods[];
/* A message that nobody took goes back to its queue. */
void request_return_message(RequestObject *req);

/* CONNECT: open, or not. */
void request_connected(RequestObject *req);

/* Hand `message` to libumx, to receive its bytes into req->hold, or
 * req->frames. */
void request_post_message(RequestObject *req, umx_message *message);

/* ---- active messages (op/am.c) ----------------------------------------------
 */

/* What am_recv() gives; NULL with an exception: the message stays. */
PyObject *am_result(RequestObject *req);

/* Forget the handlers; and, with the worker, free what they are in. */
void am_clear_handlers(WorkerObject *worker);
void am_free_handlers(WorkerObject *worker);

/* Its bytes are not here: get memory for them. */
void am_fetch(RequestObject *req);

/* The user's header, of at most `max` bytes; NULL: none. -1 with an exception.
 */
int request_hold_header(RequestObject *req, PyObject *arg, int max);

/* The exception that is set is the request's; the message stays. */
void request_fail_fetch(RequestObject *req);

/* Memory for what has come, held: of `allocator`, if not NULL, else of the
 * worker's. NULL with an exception. */
PyObject *request_allocate(WorkerObject *worker, PyObject *allocator,
                           size_t len, bool is_device, buffer_hold *hold);

#define METHOD(name)                                                  \
    PyObject *name(PyObject *op, PyObject *const *args, Py_ssize_t n, \
                   PyObject *kwnames)
METHOD(endpoint_am_send);
METHOD(endpoint_am_recv);
METHOD(endpoint_am_recv_message);
METHOD(endpoint_am_probe);
#undef METHOD
PyObject *worker_set_am_handler(PyObject *op, PyObject *const *args,
                                Py_ssize_t nargs);
PyObject *worker_set_am_allocator(PyObject *op, PyObject *const *args,
                                  Py_ssize_t nargs);

/* Drop the free list. */
void request_clear_free(mod_state *st);

/* ---- messages of endpoints and channels (op/channel.c) ---------------------
 */

#define MESSAGE_METHODS(X) \
    X(send)                \
    X(recv)                \
    X(recv_into)           \
    X(send_many)           \
    X(recv_many)           \
    X(recv_message)        \
    X(probe)               \
    X(send_frames)         \
    X(recv_frames)

#define DECLARE(name)                                                  \
    PyObject *messages_##name(EndpointObject *self, uint16_t channel,  \
                              PyObject *const *args, Py_ssize_t nargs, \
                              PyObject *kwnames);
MESSAGE_METHODS(DECLARE)
#undef DECLARE

/* ---- messages of frames (op/frames.c) ---------------------------------------
 */

void frames_release(RequestObject *req);

/* Hold `objects`, a sequence of buffers. -1 with an exception. */
int frames_hold(RequestObject *req, PyObject *objects, bool is_writable);

/* Nothing is held yet. NULL with an exception. */
frames_list *frames_list_new(Py_ssize_t count);
void         frames_list_free(frames_list *list);

umx_status frames_post_send(RequestObject *req, const umx_op_params *params);

/* A message for RECV_FRAMES: true if it is complete, or the request settled;
 * else its bytes are fetched. As am_result() and am_fetch(). */
bool      frames_start(RequestObject *req);
PyObject *frames_result(RequestObject *req);

/* Does making the memory run code of the program's? */
bool frames_have_allocator(const RequestObject *req);
void frames_fetch(RequestObject *req);

/* A message whose bytes have been received returns to its queue. */
void frames_unrecv(RequestObject *req);

/* ---- messages with metadata (types/metadata.c, types/message_sender.c)
 * -----------
 */

/* A dict; -1 with an exception that names what is wrong. */
int metadata_encode(PyObject *dict, umx_metadata_builder *builder);

PyObject *metadata_decode(const umx_metadata *metadata);

/* A list of new buffers, as the receiver wants them; what it makes of them; and
 * that there will be none. NULL, -1 with an exception. */
PyObject *receiver_allocate(mod_state *st, MessageReceiverObject *self,
                            const umx_frames_info *info);
int       receiver_land(mod_state *st, MessageReceiverObject *self,
                        PyObject *buffers);
int receiver_fail(mod_state *st, MessageReceiverObject *self, PyObject *exc);

/* What it was sent to. */
void sender_release(RequestObject *req);

/* ---- byte streams (op/stream.c) ---------------------------------------------
 */

PyObject *endpoint_stream_send(PyObject *op, PyObject *buffer);
PyObject *endpoint_stream_recv(PyObject *op, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames);
PyObject *endpoint_stream_shutdown(PyObject *op, PyObject *ignored);

/* ---- the worker's services (worker/worker.c) -------------------------------
 */

/* Have the loop call the worker's drain, once. May be called with an exception
 * set, which stays. */
void worker_schedule_drain(WorkerObject *worker);

/* The same, after a call that may have left something to be done. */
void worker_drain_if_due(WorkerObject *worker);

/* Settle what libumx has told. After each (P) call; it may close the worker. */
void worker_settle_told(WorkerObject *worker);

/* The same, and callbacks by call_soon: from a running task. */
void worker_after_call(WorkerObject *worker);

/* Keep the loop's timer in step with libumx's next deadline. */
void worker_update_timer(WorkerObject *worker);

/* Call `func` in the worker's thread, from where there may be a task, or libumx
 * may have been called. */
void worker_call_later(WorkerObject *worker, PyObject *func, PyObject *arg);

/* As event_type.call(): func(arg), or func() if `arg` is NULL. */
void worker_call(WorkerObject *worker, PyObject *func, PyObject *arg,
                 bool is_direct);

/* loop.call_soon(func, arg, context=context); the last two may be NULL. -1 with
 * an exception. */
int worker_call_soon(WorkerObject *worker, PyObject *func, PyObject *arg,
                     PyObject *context);

/* An exception nobody awaits: to the loop's exception handler, or kept if it
 * is to end the program. */
void worker_report_exception(WorkerObject *worker, const char *message);

/* Raise the exception that was kept: -1. */
int worker_raise_kept(WorkerObject *worker);

/* Of a worker that has a loop. Clears the exception, if one is set. */
bool worker_loop_is_closed(WorkerObject *worker);

/* -1 with RuntimeError unless this thread owns the open worker. */
int worker_check(WorkerObject *worker);

static inline bool
worker_is_helper(const WorkerObject *worker)
{
    return UNLIKELY(worker->helper != 0) &&
           worker->helper == compat_thread_id();
}

/* May this thread call what is the owner's? */
static inline bool
worker_is_mine(const WorkerObject *worker)
{
    return LIKELY(worker->thread == compat_thread_id()) ||
           worker_is_helper(worker);
}

/* True in a child: the worker is the parent's. */
static inline bool
worker_is_forked(const WorkerObject *worker)
{
    return worker->thread == 0;
}

/* ---- the helper thread (worker/thread.c) ---------------------------------
 */

/* Methods of Worker. */
PyObject *worker_share(PyObject *op, PyObject *is_shared);
PyObject *worker_run(PyObject *op, PyObject *ignored);

/* There is a helper: have it drain, and look at the next deadline. */
void worker_wake_helper(WorkerObject *worker);

/* Sleep without the GIL until drain is due, at most `limit_ns`; the helper also
 * until it is woken. Signals end it. */
void worker_sleep(WorkerObject *worker, uint64_t limit_ns);

/* ---- making objects ------------------------------------------------------
 */

/* Takes over `ep`. */
PyObject *endpoint_new(WorkerObject *worker, umx_ep *ep);
/* As Endpoint.closed(). */
bool      endpoint_is_closed(const EndpointObject *self);
PyObject *listener_new(WorkerObject *worker, PyObject *sockaddr,
                       PyObject *on_accept, PyObject *backlog,
                       PyObject *timeout, PyObject *on_remote_close);
/* Takes over `message`. NULL with an exception: it has not. */
PyObject *message_new(EndpointObject *endpoint, umx_message *message);

PyObject *remote_new(EndpointObject *endpoint, const void *key, size_t len);

/* The user's header of a message, as bytes. */
PyObject *message_header(const umx_message *message);

/* Done with it, by the worker's thread. Any thread. */
void message_drop(WorkerObject *worker, umx_message *message);

/* Back to its queue, by the worker's thread. Any thread. */
void message_give_back(WorkerObject *worker, umx_message *message);

/* Takes over `message`. NULL with an exception: it has not. */
PyObject *tag_message_new(WorkerObject *worker, umx_tag_message *message);

/* As message_give_back(). */
void tag_message_give_back(WorkerObject *worker, umx_tag_message *message);

/* Worker's methods for UCX's own tags (op/tag.c). */
PyObject *worker_send(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
PyObject *worker_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
PyObject *worker_tag_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames);
PyObject *worker_recv_message(PyObject *op, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames);
PyObject *worker_probe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
PyObject *worker_tag_probe(PyObject *op, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames);
extern const char worker_send_doc[], worker_recv_doc[], worker_tag_recv_doc[],
    worker_recv_message_doc[], worker_probe_doc[], worker_tag_probe_doc[];

/* A UCXAddress of these bytes, which are one. */
PyObject *address_new(mod_state *st, const void *data, size_t len);

/* A UCXAddress from one, or from a buffer. */
PyObject *address_from_object(mod_state *st, PyObject *obj);

/* Worker's methods for addresses (worker/address.c). */
PyObject *worker_get_address(PyObject *op, PyObject *ignored);
PyObject *worker_connect_address(PyObject *op, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames);
PyObject *worker_take_addressed(PyObject *op, PyObject *ignored);
PyObject *worker_withdraw_address(PyObject *op, PyObject *ignored);
PyObject *worker_get_on_addressed(PyObject *op, void *closure);
int       worker_set_on_addressed(PyObject *op, PyObject *value, void *closure);
extern const char worker_get_address_doc[], worker_connect_address_doc[],
    worker_take_addressed_doc[], worker_withdraw_address_doc[];

extern const event_type worker_addressed_event;

extern PyType_Spec request_spec, context_spec, worker_spec, endpoint_spec,
    channel_spec, listener_spec, message_spec, tag_message_spec, memory_spec,
    remote_spec, address_spec, array_spec, pool_spec, pool_buffer_spec,
    loan_spec, message_sender_spec, message_listener_spec,
    message_receiver_spec;

/* What libumx calls by event.c while it runs. */
bool listener_route(MessageListenerObject *self, const umx_metadata *metadata);
umx_status listener_alloc(MessageListenerObject *self,
                          const umx_frames_info *info, umx_buffer *buffers);
void       listener_finish(MessageListenerObject *self, umx_status status);
void       listener_end(MessageListenerObject *self, umx_status status);

/* log.c; the first without the GIL, in any thread. */
void      log_put(int level, const char *text);
void      log_deliver(mod_state *st);
PyObject *log_set_handler(PyObject *module, PyObject *handler);
PyObject *context_config_options(PyObject *module, PyObject *args,
                                 PyObject *kwargs);

#endif
