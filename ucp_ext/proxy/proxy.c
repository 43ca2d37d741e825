/* SPDX-License-Identifier: BSD-3-Clause */
/* proxy.c: a proxy, as one rank has it. */
#include "proxy/proxy.h"

#include "base/args.h"
#include "buffer/memh.h"
#include "proxy/event.h"
#include "worker/worker.h"

int
proxy_parse_memory(PyObject *memory, const char *name, umx_memh **memh_p)
{
    *memh_p = NULL;
    if (memory == Py_None) {
        return 0;
    }
    if (!memory_check(memory)) {
        PyErr_Format(PyExc_TypeError,
                     "%s must be a Memory, as Memory.allocate() and "
                     "Memory.register() make it, or None, not %.200s",
                     name, Py_TYPE(memory)->tp_name);
        return -1;
    }
    if (memory_check_open(memory) < 0) {
        return -1;
    }
    *memh_p = ((MemoryObject *)memory)->umx;
    return 0;
}

/* ---- operations ----------------------------------------------------------
 */

static PyObject *
request_failed(RequestObject *req)
{
    const char *detail = NULL;

    switch (req->status) {
    case UMX_ERR_TIMED_OUT:
        detail = "commands are left in the rings, and lost";
        break;
    case UMX_ERR_EXCEEDS_LIMIT:
        detail = "a proxy has at most 256 regions";
        break;
    case UMX_ERR_INVALID_PARAM:
        detail = "the memory is of another context";
        break;
    case UMX_ERR_BUSY:
        detail = "the proxy is being closed";
        break;
    default:
        break;
    }
    return joint_error(joint_of(req), req->status, req->type->name, detail);
}

/* ---- creation ------------------------------------------------------------
 */

static umx_status
create_post(RequestObject *req, const umx_op_params *params)
{
    ProxyObject *self   = joint_of(req);
    umx_status   status = joint_check_new(self);
    umx_proxy   *umx;

    if (status != UMX_OK) {
        return status;
    }
    status = umx_proxy_create(self->comm->umx, &self->params, params, &umx,
                              &req->op);
    if (status >= 0) {
        joint_set(self, umx, umx_proxy_joint(umx));
    }
    return status;
}

static const op_type op_create = {
    .name     = "create",
    .flags    = OP_PLAIN,
    .post     = create_post,
    .error    = joint_request_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(create_doc, "_create($self, /)\n--\n\n"
                         "Meet the proxies of the other ranks; awaitable.");

static PyObject *
create(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = joint_request(op, NULL, &op_create);

    return (req == NULL) ? NULL : request_post(req);
}

static int
parse(umx_proxy_params *params, PyObject *cpu, PyObject *spin,
      PyObject *timeout)
{
    params->field_mask = UMX_PROXY_FIELD_TIMEOUT;
    if (cpu != Py_None) {
        Py_ssize_t number = PyNumber_AsSsize_t(cpu, PyExc_OverflowError);

        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (number < 0 || number > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "cpu is %zd", number);
            return -1;
        }
        params->field_mask |= UMX_PROXY_FIELD_CPU;
        params->cpu = (unsigned)number;
    }
    if (spin != Py_None) {
        params->field_mask |= UMX_PROXY_FIELD_SPIN;
        if (args_timeout(spin, 0, &params->spin_ns) < 0) {
            return -1;
        }
    }
    return args_timeout(timeout, UMX_TIMEOUT_INFINITE, &params->timeout_ns);
}

static const joint_kind proxy_kind = {"proxy", event_drop_proxy};

static PyObject *
proxy_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"comm", "cpu", "spin", "timeout", NULL};

    mod_state       *st     = state_of_type(type);
    umx_proxy_params params = {.field_mask = 0};
    PyObject        *comm, *cpu = Py_None, *spin = Py_None, *timeout = Py_None;
    ProxyObject     *self;

    if (st == NULL ||
        args_check_made(args, st->comm_type,
                        "a Proxy is made by await Proxy.create(comm)") < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OOO:Proxy", keywords,
                                     st->comm_type, &comm, &cpu, &spin,
                                     &timeout) ||
        parse(&params, cpu, spin, timeout) < 0) {
        return NULL;
    }
    self = (ProxyObject *)joint_new(type, &proxy_kind, (CommObject *)comm);
    if (self != NULL) {
        self->params = params;
    }
    return (PyObject *)self;
}

/* ---- regions -------------------------------------------------------------
 */

static umx_memh *
memh_of(PyObject *memories, Py_ssize_t i, umx_status *status_p)
{
    PyObject *memory = PyTuple_GET_ITEM(memories, i);

    if (memory == Py_None) {
        return NULL;
    }
    if (((MemoryObject *)memory)->umx == NULL) {
        *status_p = UMX_ERR_STALE_KEY;
    }
    return ((MemoryObject *)memory)->umx;
}

static umx_status
region_post(RequestObject *req, const umx_op_params *params)
{
    proxy_tail *tail   = TAIL_OF(req, proxy_tail);
    umx_status  status = UMX_OK;
    umx_memh   *memh   = memh_of(tail->object, 0, &status);
    umx_memh   *source = memh_of(tail->object, 1, &status);
    unsigned    number = 0;

    if (tail->proxy->umx == NULL) {
        return UMX_ERR_CLOSED;
    }
    if (status == UMX_OK) {
        status = umx_proxy_add_region(tail->proxy->umx, memh, source, params,
                                      &number, &req->op);
    }
    tail->number = number;
    return status;
}

static PyObject *
region_result(RequestObject *req)
{
    return PyLong_FromUnsignedLongLong(TAIL_OF(req, proxy_tail)->number);
}

static const op_type op_add_region = {
    .name     = "add_region",
    .post     = region_post,
    .result   = region_result,
    .error    = request_failed,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(add_region_doc, "_add_region($self, memory, source, /)\n--\n\n"
                             "Add a region; awaitable: its number.");

static PyObject *
add_region(PyObject *op, PyObject *args)
{
    PyObject      *memory, *source, *both;
    umx_memh      *memh;
    RequestObject *req;

    if (!PyArg_ParseTuple(args, "OO:_add_region", &memory, &source) ||
        proxy_parse_memory(memory, "memory", &memh) < 0 ||
        proxy_parse_memory(source, "source", &memh) < 0) {
        return NULL;
    }
    both = PyTuple_Pack(2, memory, source);
    if (both == NULL) {
        return NULL;
    }
    req = joint_request(op, both, &op_add_region);
    Py_DECREF(both);
    return (req == NULL) ? NULL : request_post(req);
}

/* ---- life ----------------------------------------------------------------
 */

static umx_status
close_post(RequestObject *req, const umx_op_params *params)
{
    const proxy_tail *tail = TAIL_OF(req, proxy_tail);

    if (tail->proxy->umx == NULL) {
        return UMX_OK;
    }
    tail->proxy->is_closed = true;
    return umx_proxy_close(tail->proxy->umx, tail->number, params, &req->op);
}

static const op_type op_close_proxy = {
    .name     = "close",
    .flags    = OP_PLAIN,
    .post     = close_post,
    .error    = request_failed,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(close_doc, "_close($self, timeout, /)\n--\n\n"
                        "Carry out what the rings hold, and end; awaitable.");

static PyObject *
close_proxy(PyObject *op, PyObject *timeout)
{
    uint64_t       timeout_ns;
    RequestObject *req;

    if (args_timeout(timeout, UMX_TIMEOUT_INFINITE, &timeout_ns) < 0) {
        return NULL;
    }
    req = joint_request(op, NULL, &op_close_proxy);
    if (req == NULL) {
        return NULL;
    }
    TAIL_OF(req, proxy_tail)->number = timeout_ns;
    return request_post(req);
}

PyDoc_STRVAR(abort_doc, "abort($self, /)\n--\n\n"
                        "End without waiting for the commands of the rings.");

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True after close() or abort(), and when the worker\n"
                         "has ended.");

static PyObject *
get_numbers(PyObject *op, void *Py_UNUSED(closure))
{
    ProxyObject    *self = (ProxyObject *)op;
    umx_proxy_stats stats;

    if (joint_check(self) < 0) {
        return NULL;
    }
    umx_proxy_query(self->umx, &stats);
    return Py_BuildValue("(KKKK)", stats.rings, stats.regions, stats.sleeps,
                         stats.wakeups);
}

static PyMethodDef methods[] = {
    {"_create", create, METH_NOARGS, create_doc},
    {"_add_region", add_region, METH_VARARGS, add_region_doc},
    {"_close", close_proxy, METH_O, close_doc},
    {"abort", joint_abort, METH_NOARGS, abort_doc},
    {"closed", joint_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"_numbers", get_numbers, NULL, NULL, NULL},
    {"worker", owned_get_worker, NULL,
     "The worker on which the proxy was made.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(proxy_doc, "Proxy(comm, cpu=None, spin=None, timeout=None)\n--\n\n"
                        "A thread that carries out commands: see\n"
                        "ucp.proxy.Proxy.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)proxy_doc}, {Py_tp_new, proxy_new},
    {Py_tp_dealloc, joint_dealloc}, {Py_tp_traverse, joint_traverse},
    {Py_tp_methods, methods},       {Py_tp_getset, getset},
    {Py_tp_members, owned_members}, {0, NULL},
};

PyType_Spec proxy_spec = {
    .name      = "ucp._ext.Proxy",
    .basicsize = sizeof(ProxyObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
