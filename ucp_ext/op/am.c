/* SPDX-License-Identifier: BSD-3-Clause */
/* am.c: active messages of endpoints and workers.
 *
 * am_recv() gives an object with the bytes. Those of a short message come into
 * the request itself. Another eager one is in host memory already; it stays
 * with libumx until it is handed out, so that an await that is given up leaves
 * it in its queue. An announced one needs memory first: the allocator is called
 * once libumx has returned, and the request goes on with the bytes on their
 * way. */
#include "op/am.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "object/message.h"
#include "op/channel.h"
#include "op/event.h"
#include "worker/worker.h"

#include <string.h>

typedef struct TAIL am_tail {
    PyObject *header; /* bytes in front of the message, or NULL */
    char     *small;  /* a block for the bytes of a short message, or NULL */
} am_tail;

enum {
    SMALL = 64 /* bytes of a message that is received into a block */
};
_Static_assert((size_t)SMALL <= BLOCK_SIZE, "small messages");

static void
am_clear(RequestObject *req)
{
    am_tail *tail = TAIL_OF(req, am_tail);

    Py_CLEAR(tail->header);
    if (tail->small != NULL) {
        block_put(req->worker->st, tail->small);
        tail->small = NULL;
    }
}

/* ---- receiving -----------------------------------------------------------
 */

/* Held: result() gives it to callbacks that run before the task has it, and
 * they could make it shorter while a message is to be put back from it. */
PyObject *
request_bytearray(mod_state *st, size_t len, buffer_hold *hold)
{
    PyObject *object = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)len);

    if (object != NULL && buffer_acquire(st, object, true, hold) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

PyObject *
request_call_allocator(mod_state *st, PyObject *allocator, size_t len,
                       buffer_hold *hold)
{
    PyObject *object;

    Py_INCREF(allocator); /* it may be replaced while it runs */
    object = PyObject_CallFunction(allocator, "n", (Py_ssize_t)len);
    Py_DECREF(allocator);
    if (object != NULL && buffer_acquire(st, object, true, hold) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

PyObject *
request_allocate(WorkerObject *worker, PyObject *allocator, size_t len,
                 bool is_device, buffer_hold *hold)
{
    PyObject *object;

    if (is_device && worker->am_device_allocator != NULL) {
        allocator = worker->am_device_allocator;
    } else if (allocator == NULL) {
        allocator = worker->am_host_allocator;
    }
    if (allocator == NULL) {
        return request_bytearray(worker->st, len, hold);
    }
    object = request_call_allocator(worker->st, allocator, len, hold);
    if (object == NULL) {
        return NULL;
    }
    if (hold->buf.len != len) {
        PyErr_Format(PyExc_ValueError,
                     "the allocator was asked for %zu bytes and gave %zu", len,
                     hold->buf.len);
        buffer_release(hold);
        Py_DECREF(object);
        return NULL;
    }
    return object;
}

/* Make what am_recv() gives, with the bytes at `data`. */
static PyObject *
object_of(RequestObject *req, const void *data)
{
    size_t      len  = req->info.length;
    buffer_hold hold = {0};
    PyObject   *object;

    if (LIKELY(req->worker->am_host_allocator == NULL)) {
        return PyByteArray_FromStringAndSize(data, (Py_ssize_t)len);
    }
    object = request_allocate(req->worker, NULL, len, false, &hold);
    if (object == NULL) {
        return NULL;
    }
    if (hold.buf.memtype > UMX_MEMTYPE_HOST) {
        PyErr_Format(PyExc_ValueError,
                     "the allocator for host memory gave device memory "
                     "(%.200s)",
                     Py_TYPE(object)->tp_name);
        Py_CLEAR(object);
    } else if (len != 0) {
        (void)!umx_buffer_write(&hold.buf, data, len); /* host memory */
    }
    buffer_release(&hold);
    return object;
}

/* Make an object of an eager message, which is consumed if that works. */
static PyObject *
am_result(RequestObject *req)
{
    umx_message *message = req->message;
    PyObject    *object;

    object = object_of(req, message != NULL ? umx_message_data(message) :
                                              TAIL_OF(req, am_tail)->small);
    if (object == NULL) {
        request_fail_result(req);
    } else if (message != NULL) {
        req->message = NULL;
        message_drop(req->worker, message);
    }
    return object;
}

void
request_fail_fetch(RequestObject *req)
{
    request_set_exception(req, PyErr_GetRaisedException());
    request_return_message(req);
    request_settle(req, UMX_ERR_NO_MEMORY);
}

void
request_fetch_into(RequestObject *req, PyObject *memory)
{
    umx_message  *message;
    umx_op_params params;
    umx_status    status;

    req->result = memory;
    if (memory == NULL) {
        request_fail_fetch(req);
        return;
    }
    if (request_is_settled(req)) { /* given up in the allocator */
        buffer_release(&req->hold);
        return;
    }
    message      = req->message;
    req->is_told = false;
    req->message = NULL;
    params       = event_op_params(req);
    status = umx_message_recv(&message, &req->hold.buf, &params, &req->op);
    request_fetched(req, message, status);
}

/* op_type.fetch(): get memory for bytes that the sender still has. */
static void
am_fetch(RequestObject *req)
{
    TAIL_OF(req, am_tail)->header = message_header(req->message);
    if (TAIL_OF(req, am_tail)->header == NULL) {
        request_fail_fetch(req);
        return;
    }
    request_fetch_into(req,
                       request_allocate(req->worker, NULL, req->info.length,
                                        req->info.is_device, &req->hold));
}

static bool
am_runs_program(const RequestObject *req)
{
    (void)req;
    return true; /* an allocator */
}

static umx_status
am_unrecv(RequestObject *req)
{
    return channel_unrecv_message(req, TAIL_OF(req, am_tail)->header);
}

static umx_status
recv_post(RequestObject *req, const umx_op_params *params)
{
    char      *small = block_get(req->worker->st);
    umx_status status;

    if (small == NULL) {
        PyErr_Clear();
        return UMX_ERR_NO_MEMORY;
    }
    TAIL_OF(req, am_tail)->small = small;
    req->hold.buf                = umx_host_buffer(small, SMALL);
    status = umx_am_recv(req->endpoint->umx, req->channel, &req->hold.buf,
                         params, &req->op, &req->message);
    if (req->message != NULL) {
        req->info = *umx_message_info(req->message);
    }
    return status;
}

static umx_status
recv_message_post(RequestObject *req, const umx_op_params *params)
{
    return umx_am_recv(req->endpoint->umx, req->channel, NULL, params, &req->op,
                       &req->message);
}

const op_type op_am_recv = {
    .name  = "am_recv",
    .flags = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_FETCH | OP_OWN |
             OP_GIVES | OP_BLOCK,
    .post         = recv_post,
    .note         = event_note_message_first,
    .result       = am_result,
    .unrecv       = am_unrecv,
    .runs_program = am_runs_program,
    .fetch        = am_fetch,
    .clear        = am_clear,
};

const op_type op_am_recv_message = {
    .name   = "am_recv_message",
    .flags  = OP_RECV,
    .post   = recv_message_post,
    .note   = event_note_message,
    .result = request_message,
};

/* ---- methods of endpoints ------------------------------------------------
 */

int
am_parse_header(PyObject *arg, int max, PyObject **header_p)
{
    if (arg == NULL) {
        return 0;
    }
    if (PyUnicode_Check(arg)) {
        PyErr_SetString(PyExc_TypeError,
                        "a header is bytes, not str: give text.encode()");
        return -1;
    }
    *header_p = PyBytes_FromObject(arg);
    if (*header_p == NULL) {
        return -1;
    }
    if (PyBytes_GET_SIZE(*header_p) > max) {
        PyErr_Format(PyExc_ValueError,
                     "a header has at most %d bytes, this one has %zd", max,
                     PyBytes_GET_SIZE(*header_p));
        return -1;
    }
    return 0;
}

/* None: the id of a program that needs no ids. */
static int
parse_id(PyObject *arg, uint16_t *id_p)
{
    long id;

    if (arg == NULL || arg == Py_None) {
        *id_p = UMX_AM_ID_PLAIN;
        return 0;
    }
    id = PyLong_AsLong(arg);
    if (id == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (id < UMX_AM_ID_MIN || id > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "id must be %d to %d, not %ld",
                     UMX_AM_ID_MIN, UINT16_MAX, id);
        return -1;
    }
    *id_p = (uint16_t)id;
    return 0;
}

static umx_status
send_post(RequestObject *req, const umx_op_params *params)
{
    PyObject   *given  = TAIL_OF(req, am_tail)->header;
    const char *header = NULL;
    size_t      len    = 0;

    if (given != NULL) {
        header = PyBytes_AS_STRING(given);
        len    = (size_t)PyBytes_GET_SIZE(given);
    }
    return umx_am_send(req->endpoint->umx, req->channel, header, len,
                       &req->hold.buf, params, &req->op);
}

const op_type op_am_send = {
    .name  = "am_send",
    .flags = OP_SEND | OP_PLAIN | OP_BY_ID,
    .post  = send_post,
    .clear = am_clear,
};

PyObject *
endpoint_am_send(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "id", "header", "stream"};
    EndpointObject          *self       = (EndpointObject *)op;
    PyObject                *values[4]  = {NULL};
    RequestObject           *req;

    if (LIKELY(nargs == 1 && kwnames == NULL)) {
        values[0] = args[0];
    } else if (args_parse("am_send", args, nargs, kwnames, keywords, 4, 1, 1,
                          values) < 0) {
        return NULL;
    }
    req = request_new(self->worker, self, &op_am_send);
    if (req == NULL) {
        return NULL;
    }
    if (parse_id(values[1], &req->channel) < 0 ||
        am_parse_header(values[2], UMX_AM_HEADER_MAX,
                        &TAIL_OF(req, am_tail)->header) < 0 ||
        buffer_acquire(self->worker->st, values[0], false, &req->hold) < 0 ||
        device_wait(self->worker->st, values[3], &req->hold, NULL) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

static PyObject *
recv(PyObject *op, const char *name, PyObject *const *args, Py_ssize_t nargs,
     PyObject *kwnames, const op_type *type)
{
    static const char *const keywords[] = {"id"};
    EndpointObject          *self       = (EndpointObject *)op;
    PyObject                *id         = NULL;
    RequestObject           *req;

    if ((nargs != 0 || kwnames != NULL) &&
        args_parse(name, args, nargs, kwnames, keywords, 1, 0, 0, &id) < 0) {
        return NULL;
    }
    req = request_new(self->worker, self, type);
    if (req == NULL) {
        return NULL;
    }
    if (parse_id(id, &req->channel) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyObject *
endpoint_am_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames)
{
    return recv(op, "am_recv", args, nargs, kwnames, &op_am_recv);
}

PyObject *
endpoint_am_recv_message(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames)
{
    return recv(op, "am_recv_message", args, nargs, kwnames,
                &op_am_recv_message);
}

PyObject *
endpoint_am_probe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames)
{
    static const char *const keywords[] = {"id"};
    EndpointObject          *self       = (EndpointObject *)op;
    PyObject                *arg;
    uint16_t                 id;
    umx_recv_info            info;
    umx_status               status;

    if (args_parse("am_probe", args, nargs, kwnames, keywords, 1, 0, 0, &arg) <
            0 ||
        parse_id(arg, &id) < 0) {
        return NULL;
    }
    if (self->worker->umx == NULL) {
        Py_RETURN_NONE;
    }
    status = umx_am_probe(self->umx, id, &info);
    if (status == UMX_ERR_NO_MESSAGE) {
        Py_RETURN_NONE;
    }
    if (status != UMX_OK) {
        return errors_raise(self->worker->st, status, "am_probe", NULL);
    }
    return PyLong_FromSize_t(info.length);
}

/* ---- methods of workers --------------------------------------------------
 */

/* Hand one message to the handler, and call again for the next: the handler may
 * close the worker. */
static void
call_handler(event *self, bool is_direct)
{
    am_handler     *handler = EVENT_OF(self, am_handler, event);
    WorkerObject   *worker  = handler->worker;
    EndpointObject *endpoint;
    PyObject       *func, *object;
    umx_message    *message = NULL;
    umx_ep         *ep;

    if (worker->umx != NULL && handler->func != NULL) {
        message = umx_worker_take_am(worker->umx, handler->id, &ep);
    }
    if (message == NULL) {
        return;
    }
    event_append(&worker->calls, self);
    endpoint = umx_ep_get_arg(ep); /* borrowed */
    if (endpoint == NULL || compat_is_dying(endpoint)) {
        umx_message_drop(message); /* the program has dropped the endpoint */
        return;
    }
    Py_INCREF(worker);
    Py_INCREF(endpoint);
    func   = Py_NewRef(handler->func);
    object = message_new(endpoint, message);
    if (object == NULL) {
        message_drop(worker, message);
        worker_report_exception(worker, "an active message was dropped");
    } else {
        ((MessageObject *)object)->is_consumed = true;
        worker_call(worker, func, object, is_direct);
        Py_DECREF(object);
    }
    Py_DECREF(func);
    Py_DECREF(endpoint);
    Py_DECREF(worker);
}

static void
settle_ready(event *self)
{
    am_handler *handler = EVENT_OF(self, am_handler, event);

    event_append(&handler->worker->calls, self);
}

static const event_type am_event = {settle_ready, call_handler};

/* Get the handler of an id, made on first use. NULL with an exception. */
static am_handler *
get_handler(WorkerObject *self, uint16_t id)
{
    am_handler *handler = self->am_handlers;

    while (handler != NULL && handler->id != id) {
        handler = handler->next;
    }
    if (handler == NULL) {
        handler = PyMem_Calloc(1, sizeof(*handler));
        if (handler == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        handler->event.type = &am_event;
        handler->worker     = self;
        handler->id         = id;
        handler->next       = self->am_handlers;
        self->am_handlers   = handler;
    }
    return handler;
}

PyObject *
worker_set_am_handler(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    WorkerObject *self = (WorkerObject *)op;
    am_handler   *handler;
    uint16_t      id;
    umx_status    status;

    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError,
                     "_set_am_handler() takes 2 arguments but %zd were given",
                     nargs);
        return NULL;
    }
    if (parse_id(args[0], &id) < 0) {
        return NULL;
    }
    handler = get_handler(self, id);
    if (handler == NULL || worker_check(self) < 0) {
        return NULL;
    }
    status = event_watch_am(self, id, args[1] != Py_None ? handler : NULL);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "am_handler", NULL);
    }
    worker_schedule_drain(self);
    Py_XSETREF(handler->func, args[1] != Py_None ? Py_NewRef(args[1]) : NULL);
    Py_RETURN_NONE;
}

void
am_clear_handlers(WorkerObject *worker)
{
    for (am_handler *handler = worker->am_handlers; handler != NULL;
         handler             = handler->next) {
        if (worker->umx != NULL && worker_is_mine(worker)) {
            (void)!event_watch_am(worker, handler->id, NULL);
        }
        Py_CLEAR(handler->func);
    }
}

void
am_free_handlers(WorkerObject *worker)
{
    am_handler *handler;

    while ((handler = worker->am_handlers) != NULL) {
        worker->am_handlers = handler->next;
        event_unlink(&handler->event);
        Py_XDECREF(handler->func);
        PyMem_Free(handler);
    }
}

PyObject *
worker_set_am_allocator(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    WorkerObject *self = (WorkerObject *)op;
    PyObject    **slot;
    int           is_device;

    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError,
                     "_set_am_allocator() takes 2 arguments but %zd were given",
                     nargs);
        return NULL;
    }
    is_device = PyObject_IsTrue(args[0]);
    if (is_device < 0) {
        return NULL;
    }
    slot = is_device ? &self->am_device_allocator : &self->am_host_allocator;
    Py_XSETREF(*slot, (args[1] == Py_None) ? NULL : Py_NewRef(args[1]));
    Py_RETURN_NONE;
}
