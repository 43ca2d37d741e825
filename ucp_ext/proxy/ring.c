/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.c: a ring of commands, and its producer. Commands are written, and
 * waited for, in any thread. */
#include "proxy/ring.h"

#include "base/args.h"
#include "comm/communicator.h"
#include "proxy/event.h"
#include "proxy/proxy.h"
#include "worker/worker.h"

enum {
    CHUNK = 64 /* commands */
};

typedef struct RingObject {
    OWNED_HEAD;
    umx_proxy_ring   *umx;
    ProxyObject      *proxy;
    PyObject         *memory; /* in which it lies; or NULL */
    umx_ring_producer producer;
} RingObject;

/* ---- errors --------------------------------------------------------------
 */

/* The exception of `status`: what makes no sense is a ValueError. */
static PyObject *
new_error(mod_state *st, umx_status status, const char *op, const char *reason)
{
    PyObject *text, *exc;

    if (status == UMX_ERR_CLOSED) {
        return errors_new_text(st, status, op, reason);
    }
    if (status != UMX_ERR_INVALID_PARAM) {
        return errors_new(st, status, op, reason);
    }
    text = PyUnicode_FromFormat("%s: %s", op, reason);
    if (text == NULL) {
        return NULL;
    }
    exc = PyObject_CallOneArg(PyExc_ValueError, text);
    Py_DECREF(text);
    return exc;
}

/* The exception of `status`, with the reason of the first ring of a tuple that
 * has ended. */
static PyObject *
ring_error(mod_state *st, umx_status status, const char *op, PyObject *rings)
{
    umx_proxy_error error;
    PyObject       *exc, *number;

    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rings); i++) {
        RingObject *ring = (RingObject *)PyTuple_GET_ITEM(rings, i);

        if (!umx_proxy_ring_get_error(ring->umx, &error) ||
            error.status != status) {
            continue;
        }
        if (status == UMX_ERR_RANK_FAILED && error.cause != UMX_OK) {
            umx_comm_failure failure = {.rank   = error.rank,
                                        .op     = op,
                                        .cause  = error.cause,
                                        .member = -1};

            return comm_lost_error(st, &failure, error.reason, op);
        }
        exc    = new_error(st, status, op, error.reason);
        number = (error.rank < 0) ? Py_NewRef(Py_None) :
                                    PyLong_FromLong(error.rank);
        if (exc != NULL && (number == NULL ||
                            PyObject_SetAttrString(exc, "rank", number) < 0)) {
            Py_CLEAR(exc);
        }
        Py_XDECREF(number);
        return exc;
    }
    if (status == UMX_ERR_CLOSED) {
        return new_error(st, status, op, "the proxy is closed");
    }
    if (status == UMX_ERR_INVALID_PARAM) {
        return new_error(st, status, op, "the rings are of several proxies");
    }
    return errors_new(st, status, op, NULL);
}

/* Raise what has ended the ring; 0: it has not ended. */
static int
check_ended(RingObject *self, const char *op)
{
    umx_ring_u64 error = umx_ring_error(&self->producer.ring);
    PyObject    *alone;

    if (worker_is_forked(self->worker) || error == UMX_RING_FORKED) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the ring belongs to the parent process");
        return -1;
    }
    if (error == 0) {
        return 0;
    }
    alone = PyTuple_Pack(1, self);
    if (alone != NULL) {
        (void)errors_set(ring_error(
            self->worker->st, (umx_status)UMX_RING_STATUS(error), op, alone));
        Py_DECREF(alone);
    }
    return -1;
}

/* ---- producing -----------------------------------------------------------
 */

PyDoc_STRVAR(push_doc,
             "_push($self, commands, first, /)\n--\n\n"
             "Write commands, from the one at `first` on, as long as\n"
             "there is room; how many, the number after the last, and\n"
             "the command that is to end before there is more room.");

static PyObject *
push(PyObject *op, PyObject *args)
{
    RingObject      *self = (RingObject *)op;
    umx_ring_command chunk[CHUNK];
    Py_buffer        view;
    Py_ssize_t       first, count, done;

    if (!PyArg_ParseTuple(args, "y*n:_push", &view, &first)) {
        return NULL;
    }
    count = view.len / (Py_ssize_t)sizeof(*chunk);
    if (view.len % (Py_ssize_t)sizeof(*chunk) != 0 || first < 0 ||
        first > count) {
        PyErr_Format(PyExc_ValueError,
                     "commands have 16 bytes each, and these are %zd bytes",
                     view.len);
        PyBuffer_Release(&view);
        return NULL;
    }
    if (check_ended(self, "push") < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    for (done = first; done < count;) {
        Py_ssize_t   n = (count - done < CHUNK) ? count - done : CHUNK;
        umx_ring_u64 pushed;

        memcpy(chunk, (char *)view.buf + done * (Py_ssize_t)sizeof(*chunk),
               (size_t)n * sizeof(*chunk));
        pushed = umx_ring_try_push(&self->producer, chunk, (umx_ring_u64)n);
        done += (Py_ssize_t)pushed;
        if ((Py_ssize_t)pushed < n) {
            break;
        }
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("(nKK)", done - first,
                         (unsigned long long)self->producer.head,
                         (unsigned long long)self->producer.retired);
}

/* ---- waiting -------------------------------------------------------------
 */

/* The rings of a tuple of RingObjects. NULL with an exception. */
static umx_proxy_ring **
handles_of(mod_state *st, PyObject *rings)
{
    Py_ssize_t       count   = PyTuple_GET_SIZE(rings);
    umx_proxy_ring **handles = PyMem_Calloc((size_t)count + 1,
                                            sizeof(*handles));

    if (handles == NULL) {
        return (void *)PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *ring = PyTuple_GET_ITEM(rings, i);

        if (!PyObject_TypeCheck(ring, st->ring_type)) {
            PyErr_Format(PyExc_TypeError, "expected a Ring, got %.200s",
                         Py_TYPE(ring)->tp_name);
            PyMem_Free(handles);
            return NULL;
        }
        handles[i] = ((RingObject *)ring)->umx;
    }
    return handles;
}

static umx_status
quiet_post(RequestObject *req, const umx_op_params *params)
{
    PyObject        *rings   = TAIL_OF(req, proxy_tail)->object;
    umx_proxy_ring **handles = handles_of(req->worker->st, rings);
    umx_status       status;

    if (handles == NULL) {
        PyErr_Clear(); /* the types have been looked at */
        return UMX_ERR_NO_MEMORY;
    }
    status = umx_proxy_quiet(handles, (size_t)PyTuple_GET_SIZE(rings), params,
                             &req->op);
    PyMem_Free(handles);
    return status;
}

static umx_status
retire_post(RequestObject *req, const umx_op_params *params)
{
    const proxy_tail *tail = TAIL_OF(req, proxy_tail);
    RingObject       *ring = (RingObject *)PyTuple_GET_ITEM(tail->object, 0);

    if (umx_ring_is_retired(&ring->producer.ring, tail->number)) {
        return UMX_OK;
    }
    return umx_proxy_ring_retire(ring->umx, tail->number, params, &req->op);
}

static PyObject *
wait_error(RequestObject *req)
{
    return ring_error(req->worker->st, req->status, req->type->name,
                      TAIL_OF(req, proxy_tail)->object);
}

static const op_type op_quiet = {
    .name     = "quiet",
    .flags    = OP_PLAIN,
    .post     = quiet_post,
    .error    = wait_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

static const op_type op_retire = {
    .name     = "wait",
    .flags    = OP_PLAIN,
    .post     = retire_post,
    .error    = wait_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(quiet_doc, "_quiet($self, rings, /)\n--\n\n"
                        "Wait until what was written to these rings is over;\n"
                        "awaitable.");

static PyObject *
quiet(PyObject *op, PyObject *rings)
{
    RingObject      *self = (RingObject *)op;
    umx_proxy_ring **handles;
    RequestObject   *req;

    if (!PyTuple_Check(rings)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of rings");
        return NULL;
    }
    handles = handles_of(self->worker->st, rings);
    if (handles == NULL) {
        return NULL;
    }
    PyMem_Free(handles);
    req = joint_request(self->proxy, rings, &op_quiet);
    return (req == NULL) ? NULL : request_post(req);
}

PyDoc_STRVAR(retire_doc, "_retire($self, number, /)\n--\n\n"
                         "Wait until a command is retired; awaitable.");

static PyObject *
retire(PyObject *op, PyObject *value)
{
    RingObject    *self = (RingObject *)op;
    uint64_t       number;
    PyObject      *alone;
    RequestObject *req;

    if (args_raw_tag(value, "number", &number) < 0) {
        return NULL;
    }
    alone = PyTuple_Pack(1, self);
    if (alone == NULL) {
        return NULL;
    }
    req = joint_request(self->proxy, alone, &op_retire);
    Py_DECREF(alone);
    if (req == NULL) {
        return NULL;
    }
    TAIL_OF(req, proxy_tail)->number = number;
    return request_post(req);
}

PyDoc_STRVAR(wait_doc,
             "_wait($self, rings, number, timeout, /)\n--\n\n"
             "Block until a command of this ring, or with None all of\n"
             "the rings, is over.");

static PyObject *
wait_for(PyObject *op, PyObject *args)
{
    RingObject      *self = (RingObject *)op;
    PyObject        *rings, *value, *timeout;
    umx_proxy_ring **handles;
    uint64_t         number = 0, timeout_ns;
    size_t           count;
    umx_status       status;

    if (!PyArg_ParseTuple(args, "O!OO:_wait", &PyTuple_Type, &rings, &value,
                          &timeout) ||
        args_timeout(timeout, UMX_TIMEOUT_INFINITE, &timeout_ns) < 0 ||
        (value != Py_None && args_raw_tag(value, "number", &number) < 0)) {
        return NULL;
    }
    handles = handles_of(self->worker->st, rings);
    if (handles == NULL) {
        return NULL;
    }
    count = (size_t)PyTuple_GET_SIZE(rings);
    Py_BEGIN_ALLOW_THREADS;
    status = (value == Py_None) ?
                 umx_proxy_quiet_wait(handles, count, timeout_ns) :
                 umx_proxy_ring_wait(self->umx, number, timeout_ns);
    Py_END_ALLOW_THREADS;
    PyMem_Free(handles);
    if (status != UMX_OK) {
        return errors_set(ring_error(self->worker->st, status,
                                     (value == Py_None) ? "quiet" : "wait",
                                     rings));
    }
    Py_RETURN_NONE;
}

/* ---- life ----------------------------------------------------------------
 */

static void
give_back(PyObject *op)
{
    RingObject     *self = (RingObject *)op;
    umx_proxy_ring *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL) {
        umx_proxy_ring_destroy(umx);
    }
}

static void
dealloc(PyObject *op)
{
    PyObject *proxy  = (PyObject *)((RingObject *)op)->proxy;
    PyObject *memory = ((RingObject *)op)->memory;

    owned_dealloc_with(op, give_back, proxy);
    Py_XDECREF(memory);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((RingObject *)op)->proxy);
    Py_VISIT(((RingObject *)op)->memory);
    return owned_traverse(op, visit, arg);
}

static int
parse(umx_proxy_ring_params *params, PyObject *capacity, int is_several,
      PyObject *in_flight, PyObject *first)
{
    Py_ssize_t number = PyNumber_AsSsize_t(capacity, PyExc_OverflowError);
    Py_ssize_t limit  = PyNumber_AsSsize_t(in_flight, PyExc_OverflowError);

    if (PyErr_Occurred() || args_raw_tag(first, "first", &params->first) < 0) {
        return -1;
    }
    if (number < 2 || number > 1 << 20 || (number & (number - 1)) != 0) {
        PyErr_Format(PyExc_ValueError,
                     "capacity is %zd, not a power of two from 2 to 2**20",
                     number);
        return -1;
    }
    if (limit < 1 || limit > UMX_PROXY_IN_FLIGHT_MAX) {
        PyErr_Format(PyExc_ValueError, "in_flight is %zd, not 1 to %d", limit,
                     UMX_PROXY_IN_FLIGHT_MAX);
        return -1;
    }
    params->field_mask = UMX_PROXY_RING_FIELD_KIND |
                         UMX_PROXY_RING_FIELD_IN_FLIGHT |
                         UMX_PROXY_RING_FIELD_DEVICE |
                         UMX_PROXY_RING_FIELD_FIRST;
    params->capacity  = (unsigned)number;
    params->in_flight = (unsigned)limit;
    params->kind      = is_several ? UMX_RING_SEVERAL : 0;
    return 0;
}

static PyObject *
create(PyTypeObject *type, ProxyObject *proxy,
       const umx_proxy_ring_params *params, PyObject *memory)
{
    RingObject *self = (RingObject *)type->tp_alloc(type, 0);
    umx_status  status;

    if (self == NULL) {
        return NULL;
    }
    self->worker = (WorkerObject *)Py_NewRef(proxy->worker);
    self->proxy  = (ProxyObject *)Py_NewRef(proxy);
    self->memory = Py_NewRef(memory);
    status       = umx_proxy_ring_create(proxy->umx, params, &self->umx);
    if (status != UMX_OK) {
        const char *detail = NULL;

        if (status == UMX_ERR_INVALID_PARAM) {
            detail = "the memory is not of the host, or not aligned to 64 "
                     "bytes";
        } else if (status == UMX_ERR_BUFFER_TOO_SMALL) {
            detail = "the memory has fewer than 384 bytes and 16 for each "
                     "command";
        }
        (void)errors_raise(self->worker->st, status, "ring", detail);
        Py_DECREF(self);
        return NULL;
    }
    umx_ring_producer_init(&self->producer, umx_proxy_ring_get(self->umx));
    return (PyObject *)self;
}

static PyObject *
ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"proxy",  "capacity", "several", "in_flight",
                               "memory", "device",   "first",   NULL};

    mod_state            *st     = state_of_type(type);
    umx_proxy_ring_params params = {.field_mask = 0};
    PyObject             *proxy, *capacity, *in_flight, *memory, *first;
    int                   is_several, is_device;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!OpOOpO:Ring", keywords, st->proxy_type, &proxy,
            &capacity, &is_several, &in_flight, &memory, &is_device, &first) ||
        parse(&params, capacity, is_several, in_flight, first) < 0 ||
        joint_check((ProxyObject *)proxy) < 0 ||
        proxy_parse_memory(memory, "memory", &params.memh) < 0) {
        return NULL;
    }
    params.is_device = is_device != 0;
    if (params.memh != NULL) {
        params.field_mask |= UMX_PROXY_RING_FIELD_MEMORY;
    }
    return create(type, (ProxyObject *)proxy, &params, memory);
}

/* ---- what is known -------------------------------------------------------
 */

static PyObject *
get_error(PyObject *op, void *Py_UNUSED(closure))
{
    umx_proxy_error error;

    if (!umx_proxy_ring_get_error(((RingObject *)op)->umx, &error)) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(iiKKKs)", (int)error.status, error.rank,
                         (unsigned long long)error.number,
                         (unsigned long long)error.command.w0,
                         (unsigned long long)error.command.w1, error.reason);
}

static PyObject *
get_numbers(PyObject *op, void *Py_UNUSED(closure))
{
    umx_proxy_ring_stats s;

    umx_proxy_ring_query(((RingObject *)op)->umx, &s);
    return Py_BuildValue("(KKKKKKKKKK)", s.puts, s.signals, s.quiets,
                         s.barriers, s.nops, s.bytes, s.fences, s.in_flight,
                         s.in_flight_peak, s.stalls);
}

static PyObject *
get_layout(PyObject *op, void *Py_UNUSED(closure))
{
    const umx_ring *ring = &((RingObject *)op)->producer.ring;

    return Py_BuildValue("(KKKII)", (unsigned long long)(uintptr_t)ring->words,
                         (unsigned long long)(uintptr_t)ring->commands,
                         (unsigned long long)ring->first, ring->shift,
                         ring->kind);
}

/* The ring as C has it, for producers that are to wake the proxy. */
static PyObject *
get_view(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(
        (void *)(uintptr_t)umx_proxy_ring_get(((RingObject *)op)->umx));
}

static PyObject *
get_retired(PyObject *op, void *Py_UNUSED(closure))
{
    const umx_ring *ring = &((RingObject *)op)->producer.ring;

    return PyLong_FromUnsignedLongLong(
        umx_ring_load_acquire(&ring->words->retired));
}

static PyMethodDef methods[] = {
    {"_push", push, METH_VARARGS, push_doc},
    {"_quiet", quiet, METH_O, quiet_doc},
    {"_retire", retire, METH_O, retire_doc},
    {"_wait", wait_for, METH_VARARGS, wait_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"_error", get_error, NULL, NULL, NULL},
    {"_numbers", get_numbers, NULL, NULL, NULL},
    {"_layout", get_layout, NULL, NULL, NULL},
    {"_view", get_view, NULL, NULL, NULL},
    {"_retired", get_retired, NULL, NULL, NULL},
    {"worker", owned_get_worker, NULL,
     "The worker on which the proxy was made.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(ring_doc, "Ring(proxy, capacity, several, in_flight, memory,\n"
                       "     device, first)\n--\n\n"
                       "A ring of commands: see ucp.proxy.Ring.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)ring_doc},  {Py_tp_new, ring_new},
    {Py_tp_dealloc, dealloc},       {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},       {Py_tp_getset, getset},
    {Py_tp_members, owned_members}, {0, NULL},
};

PyType_Spec ring_spec = {
    .name      = "ucp._ext.Ring",
    .basicsize = sizeof(RingObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
