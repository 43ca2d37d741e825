/* SPDX-License-Identifier: BSD-3-Clause */
/* address.c: a worker's address, and endpoints made from addresses. */
#include "op/address.h"

#include "base/args.h"
#include "object/address.h"
#include "object/endpoint.h"
#include "worker/event.h"
#include "worker/worker.h"

const char worker_get_address_doc[] =
    "get_address($self, /)\n--\n\n"
    "The worker's UCXAddress, always the same. The first call starts to\n"
    "listen: peers that connect to it are what take_addressed() gives.";

PyObject *
worker_get_address(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    const void   *address;
    size_t        len;
    umx_status    status;

    if (worker_check(self) < 0) {
        return NULL;
    }
    status = umx_worker_get_address(self->umx, &address, &len);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "get_address", NULL);
    }
    if (self->loop != NULL) {
        worker_schedule_drain(self);
    }
    return address_new(self->st, address, len);
}

const char worker_connect_address_doc[] =
    "_connect_address($self, address, timeout)\n--\n\n"
    "An Endpoint to the worker of a UCXAddress, or of its bytes. It is\n"
    "connecting: sends wait for that, at most `timeout` seconds.";

PyObject *
worker_connect_address(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames)
{
    static const char *const keywords[] = {"address", "timeout"};
    WorkerObject            *self       = (WorkerObject *)op;
    umx_connect_params       params = {.field_mask = UMX_CONNECT_FIELD_TIMEOUT};
    PyObject                *values[2], *address, *endpoint;
    Py_buffer                view;
    umx_status               status;
    umx_ep                  *ep;

    if (args_parse("_connect_address", args, nargs, kwnames, keywords, 2, 2, 2,
                   values) < 0 ||
        args_timeout(values[1], UMX_TIMEOUT_INFINITE, &params.timeout_ns) < 0) {
        return NULL;
    }
    address = address_from_object(self->st, values[0]);
    if (address == NULL) {
        return NULL;
    }
    if (worker_check(self) < 0 || /* now that code of the arguments has run */
        PyObject_GetBuffer(address, &view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(address);
        return NULL;
    }
    status = umx_ep_connect_address(self->umx, view.buf, (size_t)view.len,
                                    &params, &ep);
    PyBuffer_Release(&view);
    Py_DECREF(address);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "connect_address", NULL);
    }
    endpoint = endpoint_new(self, ep);
    if (self->loop != NULL) {
        worker_schedule_drain(self);
    }
    worker_update_timer(self);
    return endpoint;
}

const char worker_take_addressed_doc[] =
    "_take_addressed($self, /)\n--\n\n"
    "The next Endpoint that a peer made from this worker's address, or None.";

PyObject *
worker_take_addressed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    umx_ep       *ep;

    if (worker_check(self) < 0) {
        return NULL;
    }
    ep = umx_worker_take_addressed(self->umx);
    return (ep == NULL) ? Py_NewRef(Py_None) : endpoint_new(self, ep);
}

const char worker_withdraw_address_doc[] =
    "_withdraw_address($self, /)\n--\n\n"
    "Stop listening on the address, for good. Endpoints that were not taken\n"
    "close in the background.";

PyObject *
worker_withdraw_address(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (worker_check(self) < 0) {
        return NULL;
    }
    umx_worker_withdraw_address(self->umx);
    worker_after_call(self);
    if (self->loop != NULL) {
        worker_schedule_drain(self);
    }
    Py_RETURN_NONE;
}

static void
settle_addressed(event *self)
{
    WorkerObject *worker = EVENT_OF(self, WorkerObject, addressed);

    if (worker->on_addressed != NULL) {
        event_append(&worker->calls, self);
    }
}

static void
call_addressed(event *self, bool is_direct)
{
    WorkerObject *worker = EVENT_OF(self, WorkerObject, addressed);
    PyObject     *func   = Py_XNewRef(worker->on_addressed);

    Py_INCREF(worker);
    if (func != NULL) {
        worker_call(worker, func, NULL, is_direct);
        Py_DECREF(func);
    }
    Py_DECREF(worker);
}

const event_type worker_addressed_event = {settle_addressed, call_addressed};

PyObject *
worker_get_on_addressed(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return Py_NewRef(self->on_addressed != NULL ? self->on_addressed : Py_None);
}

int
worker_set_on_addressed(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;
    umx_status    status;

    if (value == NULL || (value != Py_None && !PyCallable_Check(value))) {
        PyErr_SetString(PyExc_TypeError,
                        "on_addressed must be callable or None");
        return -1;
    }
    if (worker_check(self) < 0) {
        return -1;
    }
    status = event_watch_addressed(self);
    if (status != UMX_OK) {
        (void)errors_raise(self->st, status, "on_addressed", NULL);
        return -1;
    }
    Py_XSETREF(self->on_addressed, value == Py_None ? NULL : Py_NewRef(value));
    return 0;
}
