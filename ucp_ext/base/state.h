/* SPDX-License-Identifier: BSD-3-Clause */
/* state.h: what the module owns. Thread: with the GIL. */
#ifndef UCP_EXT_BASE_STATE_H
#define UCP_EXT_BASE_STATE_H

#include "base/compat.h"
#include "base/errors.h"

/* The objects: each noun has a header of its own. */
typedef struct ContextObject         ContextObject;
typedef struct WorkerObject          WorkerObject;
typedef struct EndpointObject        EndpointObject;
typedef struct ListenerObject        ListenerObject;
typedef struct MessageObject         MessageObject;
typedef struct TagMessageObject      TagMessageObject;
typedef struct MemoryObject          MemoryObject;
typedef struct RemoteObject          RemoteObject;
typedef struct HeapObject            HeapObject;
typedef struct PoolObject            PoolObject;
typedef struct LoanObject            LoanObject;
typedef struct PoolBufferObject      PoolBufferObject;
typedef struct MessageListenerObject MessageListenerObject;
typedef struct MessageReceiverObject MessageReceiverObject;
typedef struct RequestObject         RequestObject;
typedef struct block                 block;

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
    X(_callback)                \
    X(_ready)                   \
    X(_scheduled)               \
    X(_when)                    \
    X(call_exception_handler)   \
    X(cancel)                   \
    X(is_closed)                \
    X(status)                   \
    X(op)                       \
    X(peer)                     \
    X(nbytes)                   \
    X(unsent_bytes)             \
    X(results)                  \
    X(late)                     \
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

/* Types that the module makes of specs, which are called name##_spec. */
#define TYPE_TABLE(X)   \
    X(context)          \
    X(worker)           \
    X(thread_future)    \
    X(endpoint)         \
    X(channel)          \
    X(listener)         \
    X(message)          \
    X(tag_message)      \
    X(array)            \
    X(memory)           \
    X(remote)           \
    X(heap)             \
    X(pool)             \
    X(pool_buffer)      \
    X(loan)             \
    X(address)          \
    X(topology)         \
    X(message_sender)   \
    X(message_listener) \
    X(message_receiver) \
    X(comm)             \
    X(comm_message)     \
    X(shuffler)         \
    X(chunk)            \
    X(proxy)            \
    X(ring)             \
    X(map_outputs)      \
    X(map_writer)       \
    X(map_reader)       \
    X(map_fetch)        \
    X(map_block)        \
    X(symmetric_heap)   \
    X(symmetric_memory) \
    X(moe_buffer)       \
    X(moe_call)         \
    X(bytes_block)

struct mod_state {
    PyTypeObject *request_type; /* of new ones, that are coroutines */
    PyTypeObject *future_request_type;
    PyTypeObject *future_await_type;
    PyObject     *get_running_loop; /* asyncio's; None if none runs */
    PyObject     *current_worker;   /* ucp's, or NULL: worker_current() */
    PyObject     *recent_worker;    /* it gave that; borrowed, or NULL */
    PyTypeObject *comm_status_type;
    PyObject     *comm_status; /* the last one that was made; or NULL */
    struct {
        int      source;
        uint64_t tag;
        size_t   len;
    } comm_status_of; /* what it says */
#define TYPE_FIELD(name) PyTypeObject *name##_type;
    TYPE_TABLE(TYPE_FIELD)
#undef TYPE_FIELD
    PyObject      *any;      /* the sentinel ANY */
    PyObject      *in_place; /* the sentinel IN_PLACE */
    PyObject      *exceptions[NUM_EXCEPTIONS];
    PyObject      *cancelled_error; /* asyncio's */
    PyObject      *invalid_state_error;
    PyObject      *context_kwname; /* ("context",) */
    PyObject      *dumps_kwname;   /* ("buffer_callback",) */
    PyObject      *pickle_dumps;   /* or NULL: see comm/pickled.c */
    PyObject      *pickle_loads;
    PyObject      *array_dumps;    /* or NULL: that of _core/arrays.py */
    PyObject      *array_modules;  /* names: those that make its arrays */
    Py_ssize_t     num_modules;    /* imported, and none of these among them */
    PyObject      *keep_buffer;    /* for the next call of `pickle_dumps` */
    PyObject      *stop_iteration; /* cached, see request/step.c */
    PyObject      *log_handler;
    PyObject      *log_get_level; /* or NULL */
    uint64_t       log_looked;    /* when it was asked last; 0: never */
    RequestObject *free_requests;
    unsigned       num_free_requests;
    unsigned       num_free_blocks;
    block         *free_blocks; /* see block.h */
    int            numpy;       /* 0: not looked yet, 1: its API is loaded */
    /* Of the buffer_acquire_late() that has begun last: which memory it
     * acquires, and what gets its stream; or NULL. */
    const struct buffer_hold *late;
    struct buffer_stream     *after;
    PyObject                 *names[64];
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
};

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

#endif
