/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c: the type of workers. */
#include "type/type.h"

#include "base/args.h"
#include "base/numbers.h"
#include "object/context.h"
#include "op/address.h"
#include "op/am.h"
#include "op/call.h"
#include "op/close.h"
#include "op/connect.h"
#include "op/tag.h"
#include "type/listener.h"
#include "type/thread_future.h"
#include "worker/methods.h"

/* ---- life ----------------------------------------------------------------
 */

static PyObject *
worker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"context", "loop", "endpoint_type",
                               "listener_type", NULL};

    mod_state    *st = state_of_type(type);
    PyObject     *context, *loop, *endpoint_class, *listener_class;
    WorkerObject *self;
    umx_status    status;

    if (st == NULL || !PyArg_ParseTupleAndKeywords(
                          args, kwargs, "O!OO!O!:Worker", keywords,
                          st->context_type, &context, &loop, &PyType_Type,
                          &endpoint_class, &PyType_Type, &listener_class)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)endpoint_class, st->endpoint_type) ||
        !PyType_IsSubtype((PyTypeObject *)listener_class, st->listener_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "endpoint_type and listener_type must be subclasses "
                        "of Endpoint and Listener");
        return NULL;
    }
    self = (WorkerObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st = st;
    event_list_init(&self->told);
    event_list_init(&self->wakes);
    event_list_init(&self->calls);
    event_list_init(&self->closers);
    self->addressed.type = &worker_addressed_event;
    self->told_fd        = -1;
    self->wake_fd        = -1;
    self->end_fd         = -1;
    self->thread         = compat_thread_id();
    self->context        = (ContextObject *)Py_NewRef(context);
    self->endpoint_class = (PyTypeObject *)Py_NewRef(endpoint_class);
    self->listener_class = (PyTypeObject *)Py_NewRef(listener_class);
    status               = umx_worker_create(self->context->umx, &self->umx);
    if (status != UMX_OK) {
        Py_DECREF(self);
        return errors_raise(st, status, "Worker", NULL);
    }
    st->num_workers++;
    if (loop != Py_None) {
        self->loop = Py_NewRef(loop);
        worker_begin_turn(self);
        if (worker_add_reader(self) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int
worker_traverse(PyObject *op, visitproc visit, void *arg)
{
    WorkerObject *self = (WorkerObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->context);
    Py_VISIT(self->loop);
    Py_VISIT(self->endpoint_class);
    Py_VISIT(self->listener_class);
    Py_VISIT(self->call_soon);
    Py_VISIT(self->ready);
    Py_VISIT(self->drain_call);
    Py_VISIT(self->readable_call);
    Py_VISIT(self->timer);
    Py_VISIT(self->raised);
    Py_VISIT(self->on_addressed);
    for (am_handler *handler = self->am_handlers; handler != NULL;
         handler             = handler->next) {
        Py_VISIT(handler->func);
    }
    Py_VISIT(self->am_host_allocator);
    Py_VISIT(self->am_device_allocator);
    return 0;
}

static int
worker_clear(PyObject *op)
{
    WorkerObject *self = (WorkerObject *)op;

    Py_CLEAR(self->loop);
    Py_CLEAR(self->call_soon);
    Py_CLEAR(self->ready);
    Py_CLEAR(self->drain_call);
    Py_CLEAR(self->readable_call);
    Py_CLEAR(self->timer);
    Py_CLEAR(self->raised);
    Py_CLEAR(self->on_addressed);
    Py_CLEAR(self->am_host_allocator);
    Py_CLEAR(self->am_device_allocator);
    am_clear_handlers(self);
    return 0;
}

static void
worker_dealloc(PyObject *op)
{
    WorkerObject *self = (WorkerObject *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject     *exc  = PyErr_GetRaisedException();

    PyObject_GC_UnTrack(op);
    worker_forget_current(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->umx != NULL) {
        /* In another thread or process UCX may not be touched: it is leaked. */
        (void)worker_clear(op);
        if (worker_is_mine(self)) {
            worker_shut(self);
        } else if (!worker_is_forked(self) &&
                   PyErr_WarnEx(PyExc_ResourceWarning,
                                "a ucp Worker was dropped in another thread "
                                "than its own without close()",
                                1) < 0) {
            PyErr_WriteUnraisable(NULL);
        }
    }
    (void)worker_clear(op);
    worker_close_wake_fds(self);
    event_unlink(&self->addressed);
    am_free_handlers(self);
    Py_CLEAR(self->context);
    Py_CLEAR(self->endpoint_class);
    Py_CLEAR(self->listener_class);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- methods -------------------------------------------------------------
 */

PyDoc_STRVAR(check_doc,
             "_check($self, /)\n--\n\n"
             "Raise RuntimeError unless this thread owns the open worker.");

static PyObject *
worker_check_owner(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return (worker_check((WorkerObject *)op) < 0) ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(set_thread_doc, "_set_thread($self, has_thread, /)\n--\n\n"
                             "Start or stop the progress thread.");

PyDoc_STRVAR(info_doc, "info($self, /)\n--\n\n"
                       "UCX's description of the worker.");

static PyObject *
worker_info(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    char         *chars;

    if (worker_check(self) < 0) {
        return NULL;
    }
    return errors_or_text(self->st, umx_worker_info(self->umx, &chars), &chars,
                          "info");
}

PyDoc_STRVAR(stats_doc, "stats($self, /)\n--\n\n"
                        "Return counters of the worker by name.");

static PyObject *
worker_stats(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject    *self = (WorkerObject *)op;
    umx_worker_stats stats;

    if (worker_check(self) < 0) {
        return NULL;
    }
    umx_worker_query(self->umx, &stats);
    return numbers_as_dict(&stats);
}

PyDoc_STRVAR(worker_flush_doc,
             "flush($self, /)\n--\n\n"
             "Wait until everything that was sent has reached the memory of\n"
             "the peers; awaitable. See ``Endpoint.flush()``.");

static PyObject *
worker_flush(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    return (worker_check(self) < 0) ? NULL :
                                      request_begin(self, NULL, &op_flush);
}

PyDoc_STRVAR(take_num_ended_doc,
             "_take_num_ended($self, /)\n--\n\n"
             "Callbacks told since the last call that their endpoint ended.");

static PyObject *
worker_take_num_ended(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    size_t        num  = self->num_ended;

    self->num_ended = 0;
    return PyLong_FromSize_t(num);
}

PyDoc_STRVAR(worker_fence_doc, "fence($self, /)\n--\n\n"
                               "Call Endpoint.fence() for every endpoint.");

static PyObject *
worker_fence(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;
    umx_status    status;

    if (worker_check(self) < 0) {
        return NULL;
    }
    status = umx_worker_fence(self->umx);
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "fence", NULL);
    }
    Py_RETURN_NONE;
}

/* ---- attributes ----------------------------------------------------------
 */

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True once the worker has ended.");

static PyObject *
worker_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    return PyBool_FromLong(self->umx == NULL || worker_is_forked(self));
}

static PyObject *
get_is_armed(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return PyBool_FromLong(self->umx != NULL && umx_worker_is_armed(self->umx));
}

static PyObject *
get_num_closing(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return PyLong_FromUnsignedLong(
        self->umx == NULL ? 0 : umx_worker_num_closing(self->umx));
}

static PyObject *
get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    WorkerObject *self = (WorkerObject *)op;

    return (self->umx == NULL) ?
               PyLong_FromLong(0) :
               PyLong_FromVoidPtr(umx_worker_handle(self->umx));
}

static PyObject *
get_loop(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *loop = ((WorkerObject *)op)->loop;

    return Py_NewRef(loop != NULL ? loop : Py_None);
}

static PyObject *
get_context(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((WorkerObject *)op)->context);
}

/* ---- listening -----------------------------------------------------------
 */

PyDoc_STRVAR(listen_doc,
             "_listen($self, sockaddr, on_accept, *, backlog=None,\n"
             "        timeout=None, on_remote_close=None, window=None)\n"
             "--\n\n"
             "Listen on (host, port[, flowinfo, scope]), numeric; a host of\n"
             "None is all addresses, of IPv6 where there is some. Calls\n"
             "on_accept(endpoint) for each peer whose handshake is complete.\n"
             "With on_remote_close accepted peers may close it; that is\n"
             "called then.");

static PyObject *
worker_listen(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    static const char *const keywords[] = {"sockaddr",        "on_accept",
                                           "backlog",         "timeout",
                                           "on_remote_close", "window"};
    WorkerObject            *self       = (WorkerObject *)op;
    PyObject                *values[6];

    if (args_parse("listen", args, nargs, kwnames, keywords, 6, 2, 2, values) <
        0) {
        return NULL;
    }
    if (!PyCallable_Check(values[1])) {
        PyErr_Format(PyExc_TypeError, "on_accept must be callable, not %.200s",
                     Py_TYPE(values[1])->tp_name);
        return NULL;
    }
    return listener_new(self, values[0], values[1], values[2], values[3],
                        values[4], values[5]);
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef worker_methods[] = {
    {"fileno", worker_fileno, METH_NOARGS, worker_fileno_doc},
    {"progress", worker_progress, METH_NOARGS, worker_progress_doc},
    {"_poll", worker_poll, METH_NOARGS, worker_poll_doc},
    {"arm", worker_arm, METH_NOARGS, worker_arm_doc},
    {"abort", worker_abort, METH_NOARGS, worker_abort_doc},
    {"_describe", worker_describe, METH_O, worker_describe_doc},
    {"closed", worker_closed, METH_NOARGS, closed_doc},
    {"_close_all", worker_close_all, METH_O, worker_close_all_doc},
    {"_run_until_closed", worker_run_until_closed, METH_O,
     worker_run_until_closed_doc},
    {"info", worker_info, METH_NOARGS, info_doc},
    {"stats", worker_stats, METH_NOARGS, stats_doc},
    {"flush", worker_flush, METH_NOARGS, worker_flush_doc},
    {"fence", worker_fence, METH_NOARGS, worker_fence_doc},
    {"send", KEYWORDS_FUNC(worker_send), KEYWORDS, worker_send_doc},
    {"recv", KEYWORDS_FUNC(worker_recv), KEYWORDS, worker_recv_doc},
    {"_tag_recv", KEYWORDS_FUNC(worker_tag_recv), KEYWORDS,
     worker_tag_recv_doc},
    {"recv_message", KEYWORDS_FUNC(worker_recv_message), KEYWORDS,
     worker_recv_message_doc},
    {"probe", KEYWORDS_FUNC(worker_probe), KEYWORDS, worker_probe_doc},
    {"tag_probe", KEYWORDS_FUNC(worker_tag_probe), KEYWORDS,
     worker_tag_probe_doc},
    {"_connect", KEYWORDS_FUNC(worker_connect), KEYWORDS, worker_connect_doc},
    {"_start_connect", KEYWORDS_FUNC(worker_start_connect), KEYWORDS,
     worker_start_connect_doc},
    {"_take_num_ended", worker_take_num_ended, METH_NOARGS, take_num_ended_doc},
    {"_listen", KEYWORDS_FUNC(worker_listen), KEYWORDS, listen_doc},
    {"get_address", worker_get_address, METH_NOARGS, worker_get_address_doc},
    {"_connect_address", KEYWORDS_FUNC(worker_connect_address), KEYWORDS,
     worker_connect_address_doc},
    {"_take_addressed", worker_take_addressed, METH_NOARGS,
     worker_take_addressed_doc},
    {"_withdraw_address", worker_withdraw_address, METH_NOARGS,
     worker_withdraw_address_doc},
    {"_set_am_handler", KEYWORDS_FUNC(worker_set_am_handler), METH_FASTCALL,
     NULL},
    {"_set_am_allocator", KEYWORDS_FUNC(worker_set_am_allocator), METH_FASTCALL,
     NULL},
    {"_submit", worker_submit_call, METH_O, worker_submit_doc},
    {"_adopt", worker_adopt, METH_NOARGS, worker_adopt_doc},
    {"_disown", worker_disown, METH_NOARGS, worker_disown_doc},
    {"_share", worker_share, METH_NOARGS, worker_share_doc},
    {"_call", KEYWORDS_FUNC(worker_call_and_wait), KEYWORDS,
     worker_call_and_wait_doc},
    {"_call_as", KEYWORDS_FUNC(worker_call_as), KEYWORDS, worker_call_as_doc},
    {"_wait", KEYWORDS_FUNC(worker_wait_for_request), METH_FASTCALL,
     worker_wait_for_request_doc},
    {"_begin", KEYWORDS_FUNC(worker_begin), KEYWORDS, worker_begin_doc},
    {"_keep", worker_keep, METH_NOARGS, worker_keep_doc},
    {"_check", worker_check_owner, METH_NOARGS, check_doc},
    {"_overslept", worker_overslept, METH_NOARGS, worker_overslept_doc},
    {"_set_thread", worker_set_thread, METH_O, set_thread_doc},
    {"_on_readable", worker_on_readable, METH_NOARGS, NULL},
    {"_on_drain", worker_on_drain, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef worker_getset[] = {
    {"_is_armed", get_is_armed, NULL,
     "True if fileno() covers all that can happen.", NULL},
    {"_num_closing", get_num_closing, NULL,
     "Number of endpoints whose close is under way.", NULL},
    {"handle", get_handle, NULL, "UCX's ucp_worker_h; 0 once closed.", NULL},
    {"loop", get_loop, NULL, "The event loop, or None.", NULL},
    {"context", get_context, NULL, "The Context.", NULL},
    {"_on_addressed", worker_get_on_addressed, worker_set_on_addressed,
     "Called when take_addressed() has another endpoint.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef worker_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(WorkerObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(worker_doc,
             "Worker(context, loop, endpoint_type, listener_type)\n--\n\n"
             "Moves the messages of its endpoints, driven by `loop`, or by\n"
             "progress() and drain() if that is None. Belongs to the thread\n"
             "that made it.");

static PyType_Slot worker_slots[] = {
    {Py_tp_doc, (void *)worker_doc},
    {Py_tp_new, worker_new},
    {Py_tp_dealloc, worker_dealloc},
    {Py_tp_traverse, worker_traverse},
    {Py_tp_clear, worker_clear},
    {Py_tp_methods, worker_methods},
    {Py_tp_getset, worker_getset},
    {Py_tp_members, worker_members},
    {0, NULL},
};

PyType_Spec worker_spec = {
    .name      = "ucp._ext.Worker",
    .basicsize = sizeof(WorkerObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = worker_slots,
};
