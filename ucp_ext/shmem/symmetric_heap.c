/* SPDX-License-Identifier: BSD-3-Clause */
/* symmetric_heap.c: the type of symmetric heaps: how one is made and closed. */
#include "base/args.h"
#include "shmem/collective_calls.h"
#include "shmem/event.h"
#include "shmem/heap.h"
#include "worker/worker.h"

/* ---- creation ------------------------------------------------------------
 */

static umx_status
create_post(RequestObject *req, const umx_op_params *params)
{
    SymmetricHeapObject *self = TAIL_OF(req, shmem_tail)->heap;

    umx_status status = joint_check_new(self);
    umx_shmem *umx;

    if (status != UMX_OK) {
        return status;
    }
    status = umx_shmem_create(self->comm->umx, self->size, params, &umx,
                              &req->op);
    if (status >= 0) {
        joint_set(self, umx, umx_shmem_joint(umx));
    }
    return status;
}

static PyObject *
create_result(RequestObject *req)
{
    SymmetricHeapObject *self = TAIL_OF(req, shmem_tail)->heap;

    self->direct  = umx_shmem_direct_of(self->umx);
    self->is_lost = umx_shmem_lost(self->umx);
    self->num_pes = umx_shmem_num_pes(self->umx);
    self->size    = umx_shmem_size(self->umx);
    Py_RETURN_NONE;
}

static const op_type op_create = {
    .name     = "create",
    .flags    = 0,
    .post     = create_post,
    .result   = create_result,
    .error    = shmem_request_error,
    .clear    = shmem_request_clear,
    .traverse = shmem_request_traverse,
};

PyDoc_STRVAR(create_doc, "_create($self, /)\n--\n\n"
                         "Meet the other ranks; awaitable.");

static PyObject *
create(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = shmem_request((SymmetricHeapObject *)op, &op_create);

    return (req == NULL) ? NULL : request_post(req);
}

static const joint_kind heap_kind = {"heap", event_drop_symmetric_heap};

static PyObject *
heap_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char         *keywords[] = {"comm", "nbytes", NULL};
    mod_state           *st         = state_of_type(type);
    SymmetricHeapObject *self;
    CommObject          *comm;
    PyObject            *number;
    Py_ssize_t           size;

    if (st == NULL ||
        args_check_made(args, st->comm_type,
                        "a SymmetricHeap is made by await "
                        "SymmetricHeap.create(comm, nbytes)") < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:SymmetricHeap",
                                     keywords, st->comm_type, &comm, &number)) {
        return NULL;
    }
    size = PyNumber_AsSsize_t(number, PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (size < 1 || (uint64_t)size > UMX_SHMEM_SIZE_MAX) {
        return PyErr_Format(PyExc_ValueError,
                            "nbytes is %zd, and not 1 to 2**46", size);
    }
    self = (SymmetricHeapObject *)joint_new(type, &heap_kind, comm);
    if (self != NULL) {
        self->size = (uint64_t)size;
    }
    return (PyObject *)self;
}

/* ---- the end -------------------------------------------------------------
 */

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "End the access of this rank; arrays and views stay valid. Other\n"
             "ranks that put to a closed heap may fail: await barrier_all()\n"
             "before it.");

static PyObject *
heap_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;

    if (self->is_closed || worker_is_forked(self->worker)) {
        self->is_closed = true;
        Py_RETURN_NONE;
    }
    if (self->umx != NULL && self->worker->umx != NULL) {
        if (worker_check(self->worker) < 0) {
            return NULL;
        }
        umx_shmem_close(self->umx);
        worker_after_call(self->worker);
        worker_schedule_drain(self->worker);
    }
    self->is_closed = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True after close(), and when the worker has ended.");

static PyObject *
heap_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;

    return PyBool_FromLong(self->is_closed || self->direct.shmem == NULL ||
                           self->worker->umx == NULL);
}

/* ---- what is known -------------------------------------------------------
 */

PyDoc_STRVAR(accessible_doc, "pe_accessible($self, pe, /)\n--\n\n"
                             "Is it a PE of the heap?");

static PyObject *
pe_accessible(PyObject *op, PyObject *number)
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;
    Py_ssize_t           pe   = PyNumber_AsSsize_t(number, NULL);

    if (pe == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(pe >= 0 && pe < self->num_pes);
}

PyDoc_STRVAR(mapped_doc,
             "is_mapped($self, pe, /)\n--\n\n"
             "Can the memory of that PE be loaded and stored here? Then\n"
             "array.on(pe) is a view of it.");

static PyObject *
is_mapped(PyObject *op, PyObject *number)
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;
    int                  pe;

    if (shmem_parse_pe(self, number, &pe) < 0) {
        return NULL;
    }
    return PyBool_FromLong(self->direct.pes != NULL &&
                           self->direct.pes[pe].base != NULL);
}

PyDoc_STRVAR(notify_doc,
             "notify($self, pe, /)\n--\n\n"
             "Wake who waits at that PE, after stores by array.on(pe) or\n"
             "array.local.");

static PyObject *
heap_notify(PyObject *op, PyObject *number)
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;
    umx_status           status;
    int                  pe;

    if (shmem_parse_pe(self, number, &pe) < 0 || joint_check(self) < 0) {
        return NULL;
    }
    status = umx_shmem_notify(self->umx, pe);
    if (status != UMX_OK) {
        return errors_set(joint_error(self, status, "notify", NULL));
    }
    worker_drain_if_due(self->worker);
    Py_RETURN_NONE;
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((SymmetricHeapObject *)op)->size);
}

static PyObject *
get_available(PyObject *op, void *Py_UNUSED(closure))
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;

    if (joint_check(self) < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(umx_shmem_available(self->umx));
}

static PyObject *
get_num_pes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((SymmetricHeapObject *)op)->num_pes);
}

#define FAST(name)                                           \
    {                                                        \
#name, (PyCFunction)(void (*)(void))heap_##name,     \
            METH_FASTCALL | METH_KEYWORDS, heap_##name##_doc \
    }

static PyMethodDef methods[] = {
    {"_create", create, METH_NOARGS, create_doc},
    {"_malloc", heap_malloc, METH_VARARGS, heap_malloc_doc},
    {"free", heap_free, METH_O, heap_free_doc},
    {"quiet", heap_quiet, METH_NOARGS, heap_quiet_doc},
    {"fence", heap_fence, METH_NOARGS, heap_fence_doc},
    {"barrier_all", heap_barrier_all, METH_NOARGS, heap_barrier_all_doc},
    {"sync_all", heap_sync_all, METH_NOARGS, heap_sync_all_doc},
    {"close", heap_close, METH_NOARGS, close_doc},
    {"closed", heap_closed, METH_NOARGS, closed_doc},
    {"pe_accessible", pe_accessible, METH_O, accessible_doc},
    {"is_mapped", is_mapped, METH_O, mapped_doc},
    {"notify", heap_notify, METH_O, notify_doc},
    FAST(put),
    FAST(get),
    FAST(iput),
    FAST(iget),
    FAST(put_signal),
    FAST(atomic_add),
    FAST(atomic_and),
    FAST(atomic_or),
    FAST(atomic_xor),
    FAST(atomic_set),
    FAST(atomic_fetch),
    FAST(atomic_fetch_add),
    FAST(atomic_fetch_and),
    FAST(atomic_fetch_or),
    FAST(atomic_fetch_xor),
    FAST(atomic_swap),
    FAST(atomic_compare_swap),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"nbytes", get_nbytes, NULL, "Bytes of each rank.", NULL},
    {"available", get_available, NULL, "Bytes that are not allocated.", NULL},
    {"num_pes", get_num_pes, NULL, "How many ranks there are.", NULL},
    {"worker", owned_get_worker, NULL, "The worker that moves the bytes.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(heap_doc, "SymmetricHeap(comm, nbytes)\n--\n\n"
                       "A symmetric heap: see ucp.shmem.SymmetricHeap.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)heap_doc},  {Py_tp_new, heap_new},
    {Py_tp_dealloc, joint_dealloc}, {Py_tp_traverse, joint_traverse},
    {Py_tp_methods, methods},       {Py_tp_getset, getset},
    {Py_tp_members, owned_members}, {0, NULL},
};

PyType_Spec symmetric_heap_spec = {
    .name      = "ucp._ext.SymmetricHeap",
    .basicsize = sizeof(SymmetricHeapObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
