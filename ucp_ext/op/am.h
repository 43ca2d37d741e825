/* SPDX-License-Identifier: BSD-3-Clause */
/* am.h: active messages. */
#ifndef UCP_EXT_OP_AM_H
#define UCP_EXT_OP_AM_H

#include "request/request.h"

/* The function for the active messages of one id. It stays, without a function,
 * until the worker goes. */
typedef struct am_handler {
    event              event;
    struct am_handler *next;   /* of worker->am_handlers */
    WorkerObject      *worker; /* borrowed */
    PyObject          *func;   /* or NULL */
    uint16_t           id;
} am_handler;

/* Drop the functions of all handlers; free the handlers, when the worker
 * goes. */
void am_clear_handlers(WorkerObject *worker);
void am_free_handlers(WorkerObject *worker);

/* Convert a user's header to bytes, at most `max`; `arg` NULL: no header. -1
 * with an exception. */
int am_parse_header(PyObject *arg, int max, PyObject **header_p);

/* Fail a request with the exception that is set; its message returns to the
 * queue. */
void request_fail_fetch(RequestObject *req);

/* Receive the bytes of the request's message into `memory`, an object that
 * req->hold holds and whose reference is taken over; NULL, with an exception:
 * the request fails with that. */
void request_fetch_into(RequestObject *req, PyObject *memory);

/* A bytearray, held. NULL with an exception. */
PyObject *request_bytearray(mod_state *st, size_t len, buffer_hold *hold);

/* What an allocator gives for `len` bytes, held, of whatever length. NULL with
 * an exception. */
PyObject *request_call_allocator(mod_state *st, PyObject *allocator, size_t len,
                                 buffer_hold *hold);

/* Get memory for a message, held: from `allocator`, if not NULL, else from the
 * worker's. NULL with an exception. */
PyObject *request_allocate(WorkerObject *worker, PyObject *allocator,
                           size_t len, bool is_device, buffer_hold *hold);

/* Methods of Endpoint and Worker. */
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

extern const op_type op_am_send, op_am_recv, op_am_recv_message;

#endif
