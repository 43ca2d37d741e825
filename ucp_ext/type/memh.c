/* SPDX-License-Identifier: BSD-3-Clause */
/* memh.c: the type of registered memory. */
#include "type/type.h"

#include "base/args.h"
#include "buffer/dlpack_export.h"
#include "buffer/event.h"
#include "buffer/memh.h"
#include "buffer/memory_kind.h"
#include "object/context.h"
#include "op/wait.h"
#include "type/heap.h"
#include "worker/worker.h"

/* ---- life ----------------------------------------------------------------
 */

static umx_status
allocate(MemoryObject *self, PyObject *nbytes, const char *kind_name,
         PyObject *device, bool is_readonly)
{
    size_t             len    = PyLong_AsSize_t(nbytes);
    const memory_kind *kind   = memory_kind_find(kind_name);
    memory_access      access = is_readonly ? MEMORY_READONLY : MEMORY_SHARED;

    if ((len == (size_t)-1 && PyErr_Occurred()) || kind == NULL ||
        memory_kind_alloc(self->st, self->context->umx, kind, device, len,
                          access, &self->umx) < 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    self->is_peer_readonly = is_readonly;
    return UMX_OK;
}

static umx_status
allocate_in(MemoryObject *self, PyObject *nbytes, HeapObject *heap)
{
    size_t len = PyLong_AsSize_t(nbytes);

    if (len == (size_t)-1 && PyErr_Occurred()) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (heap->context != self->context) {
        PyErr_SetString(PyExc_ValueError, "the heap is of another context");
        return UMX_ERR_INVALID_PARAM;
    }
    return heap_alloc(heap, len, &self->umx) < 0 ? UMX_ERR_INVALID_PARAM :
                                                   UMX_OK;
}

/* Writable if it can be, else for reading only. */
static int
acquire(MemoryObject *self, PyObject *buffer, buffer_hold *hold)
{
    if (buffer_acquire_raw(self->st, buffer, true, hold) == 0) {
        return 0;
    }
    PyErr_Clear();
    self->is_readonly      = true;
    self->is_peer_readonly = true;
    return buffer_acquire_raw(self->st, buffer, false, hold);
}

static umx_status
register_buffer(MemoryObject *self, PyObject *buffer)
{
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_FLAGS};
    memory_loan    *loan   = PyMem_Calloc(1, sizeof(*loan));
    umx_status      status;

    if (loan == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (acquire(self, buffer, &loan->hold) < 0) {
        PyMem_Free(loan);
        return UMX_ERR_INVALID_PARAM;
    }
    params.flags = self->is_readonly ? UMX_MEMH_FLAG_READONLY : 0;
    event_watch_memory(&params, loan);
    status = umx_memh_register(self->context->umx, &loan->hold.buf, &params,
                               &self->umx);
    if (status != UMX_OK) {
        buffer_release(&loan->hold);
        PyMem_Free(loan);
    } else {
        self->loan = loan;
    }
    return status;
}

static PyObject *
memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"context", "nbytes", "buffer",   "kind",
                               "device",  "heap",   "readonly", NULL};

    mod_state    *st     = state_of_type(type);
    PyObject     *nbytes = NULL, *buffer = NULL, *device = Py_None;
    PyObject     *context, *heap = NULL;
    const char   *kind        = "host";
    int           is_readonly = 0;
    MemoryObject *self;
    umx_status    status;

    if (st == NULL ||
        args_check_made(args, st->context_type,
                        "a Memory is made by Memory.allocate(nbytes) or "
                        "Memory.register(buffer)") < 0 ||
        !PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!|$O!OsOO!p:Memory", keywords, st->context_type,
            &context, &PyLong_Type, &nbytes, &buffer, &kind, &device,
            st->heap_type, &heap, &is_readonly)) {
        return NULL;
    }
    if ((nbytes == NULL) == (buffer == NULL)) {
        PyErr_SetString(PyExc_TypeError, "either nbytes or buffer is needed");
        return NULL;
    }
    self = (MemoryObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st      = st;
    self->context = (ContextObject *)Py_NewRef(context);
    st->num_memories++;
    if (nbytes == NULL) {
        status = register_buffer(self, buffer);
    } else if (heap != NULL) {
        status = allocate_in(self, nbytes, (HeapObject *)heap);
    } else {
        status = allocate(self, nbytes, kind, device, is_readonly);
    }
    if (status == UMX_OK) {
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return PyErr_Occurred() ? NULL : errors_raise(st, status, "Memory", NULL);
}

/* ---- methods -------------------------------------------------------------
 */

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "End the access of peers. Views, and operations that have\n"
             "begun, stay valid.");

static PyObject *
memory_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    memory_shut((MemoryObject *)op);
    Py_RETURN_NONE;
}

/* The number is in the memory, where the CPU reaches it at once. */
static int
check_number(const MemoryObject *self, const umx_condition *until)
{
    const umx_buffer *buf = umx_memh_buffer(self->umx);

    if (memory_check_host(buf->memtype) < 0) {
        return -1;
    }
    if (until->offset > buf->len || until->size > buf->len - until->offset) {
        PyErr_Format(PyExc_IndexError,
                     "%u bytes at offset %llu are out of the memory's %zu",
                     until->size, until->offset, buf->len);
        return -1;
    }
    if (((uintptr_t)buf->data + until->offset) % until->size != 0) {
        PyErr_Format(PyExc_ValueError,
                     "the number of %u bytes at offset %llu is not aligned",
                     until->size, until->offset);
        return -1;
    }
    return 0;
}

/* Parse a condition, and check that it is of this open memory. */
static int
parse_condition(MemoryObject *self, const char *name, PyObject *const *args,
                Py_ssize_t nargs, PyObject *kwnames, umx_condition *until)
{
    static const char *const keywords[] = {"offset", "cmp", "value", "bits"};
    PyObject                *values[4]  = {NULL};

    if (args_parse(name, args, nargs, kwnames, keywords, 4, 4, 3, values) < 0 ||
        wait_parse(until, values[0], values[1], values[2],
                   values[3] == Py_None ? NULL : values[3]) < 0 ||
        memory_check_open((PyObject *)self) < 0 ||
        check_number(self, until) < 0) {
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(
    wait_until_doc,
    "wait_until($self, offset, cmp, value, bits=64)\n--\n\n"
    "Wait until a number in this memory has a value; awaitable.\n\n"
    "    await memory.wait_until(0, \">=\", 3)\n\n"
    "It sleeps until a peer changes the memory, by whichever operation:\n"
    "``put()``, ``put_many()``, ``put_signal()`` or an atomic one. Stores by\n"
    "a peer's ``view()`` wake nobody before the peer's ``notify()``, nor do\n"
    "this process's own before ``notify()`` of the memory. What was stored\n"
    "before the number can be read then.\n\n"
    "The number may have changed again by then: let it only grow if each\n"
    "value matters. Wait in ``asyncio.timeout()`` to wait no longer than\n"
    "that.\n\n"
    "Args:\n"
    "    offset: bytes from the start; a multiple of the number's size.\n"
    "    cmp: how the number compares to ``value``, without a sign.\n"
    "    value: 0 or more.\n"
    "    bits: 64 or 32.\n\n"
    "Raises:\n"
    "    UCXInvalidKey: the memory was closed, also while this waited.\n"
    "    UCXCanceled: ucp was memory_shut down meanwhile.\n"
    "    IndexError: the number is not in the memory.\n"
    "    ValueError: it is not aligned; no such comparison or ``bits``.\n"
    "    OverflowError: ``value`` is negative, or has more bits.\n"
    "    BufferError: the memory is a device's.");

static PyObject *
memory_wait_until(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames)
{
    MemoryObject *self = (MemoryObject *)op;
    WorkerObject *worker;
    PyObject     *waiting;
    umx_condition until;

    if (parse_condition(self, "wait_until", args, nargs, kwnames, &until) < 0) {
        return NULL;
    }
    worker = worker_current(self->st);
    if (worker == NULL) {
        return NULL;
    }
    waiting = wait_post(worker, op, &until);
    Py_DECREF(worker);
    return waiting;
}

PyDoc_STRVAR(test_doc,
             "test($self, offset, cmp, value, bits=64)\n--\n\n"
             "Return whether ``wait_until()`` of the same would be done.\n\n"
             "It may be called in every thread.");

static PyObject *
memory_test(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    MemoryObject *self = (MemoryObject *)op;
    umx_condition until;
    umx_status    status;

    if (parse_condition(self, "test", args, nargs, kwnames, &until) < 0) {
        return NULL;
    }
    status = umx_memh_test(self->umx, &until);
    if (status < 0) {
        return errors_raise(self->st, status, "test", NULL);
    }
    return PyBool_FromLong(status == UMX_OK);
}

PyDoc_STRVAR(notify_doc,
             "notify($self, /)\n--\n\n"
             "Wake who waits for the memory, after stores of this process.");

static PyObject *
memory_notify(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (memory_check_open(op) < 0) {
        return NULL;
    }
    umx_memh_notify(((MemoryObject *)op)->umx);
    Py_RETURN_NONE;
}

static PyObject *
get_key(PyObject *op, void *Py_UNUSED(closure))
{
    MemoryObject *self = (MemoryObject *)op;
    const void   *key;
    size_t        len;

    if (memory_check_open(op) < 0) {
        return NULL;
    }
    key = umx_memh_key(self->umx, &len);
    return PyBytes_FromStringAndSize(key, (Py_ssize_t)len);
}

static PyObject *
get_address(PyObject *op, void *Py_UNUSED(closure))
{
    MemoryObject *self = (MemoryObject *)op;

    return (memory_check_open(op) < 0) ?
               NULL :
               PyLong_FromVoidPtr(umx_memh_buffer(self->umx)->data);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    MemoryObject *self = (MemoryObject *)op;

    return PyLong_FromSize_t(
        self->umx == NULL ? 0 : umx_memh_buffer(self->umx)->len);
}

static PyObject *
get_readonly(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((MemoryObject *)op)->is_peer_readonly);
}

PyDoc_STRVAR(
    is_mapped_elsewhere_doc,
    "is_mapped_elsewhere($self, /)\n--\n\n"
    "Return whether any process has mapped the memory, beside this one.\n\n"
    "The system counts: a process that has ended has not, and a forked child\n"
    "of this process or of a peer has. A peer's mapping ends when it has\n"
    "dropped its ``RemoteMemory`` and all views of that, and has made\n"
    "progress. Of a memory of a ``Heap``: this one, or another one that lies\n"
    "beside it. It may be called in every thread.\n\n"
    "Raises:\n"
    "    UCXInvalidKey: the memory is closed, and nothing uses it any more.");

static PyObject *
memory_is_mapped_elsewhere(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MemoryObject *self = (MemoryObject *)op;

    if (self->umx == NULL && memory_check_open(op) < 0) {
        return NULL;
    }
    return PyBool_FromLong(umx_memh_is_mapped_elsewhere(self->umx));
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue after close().");

static PyObject *
memory_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((MemoryObject *)op)->is_closed);
}

static PyObject *
get_array_interface(PyObject *op, void *Py_UNUSED(closure))
{
    MemoryObject     *self = (MemoryObject *)op;
    const umx_buffer *buf;

    if (memory_check_open(op) < 0) {
        return NULL;
    }
    buf = umx_memh_buffer(self->umx);
    return memory_array_interface(buf->memtype, buf->data, buf->len,
                                  self->is_readonly);
}

static PyObject *
get_cuda_interface(PyObject *op, void *Py_UNUSED(closure))
{
    MemoryObject     *self = (MemoryObject *)op;
    const umx_buffer *buf;

    if (memory_check_open(op) < 0) {
        return NULL;
    }
    buf = umx_memh_buffer(self->umx);
    return memory_cuda_interface(buf->memtype, buf->data, buf->len,
                                 self->is_readonly);
}

static PyMethodDef memory_methods[] = {
    {"close", memory_close, METH_NOARGS, close_doc},
    {"closed", memory_closed, METH_NOARGS, closed_doc},
    {"wait_until", (PyCFunction)(void (*)(void))memory_wait_until,
     METH_FASTCALL | METH_KEYWORDS, wait_until_doc},
    {"test", (PyCFunction)(void (*)(void))memory_test,
     METH_FASTCALL | METH_KEYWORDS, test_doc},
    {"notify", memory_notify, METH_NOARGS, notify_doc},
    {"is_mapped_elsewhere", memory_is_mapped_elsewhere, METH_NOARGS,
     is_mapped_elsewhere_doc},
    {"__dlpack__", (PyCFunction)(void (*)(void))memory_dlpack,
     METH_VARARGS | METH_KEYWORDS, memory_dlpack_doc},
    {"__dlpack_device__", memory_dlpack_device, METH_NOARGS,
     memory_dlpack_device_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef memory_getset[] = {
    {"key", get_key, NULL, "The bytes by which a peer accesses the memory.",
     NULL},
    {"address", get_address, NULL, "Address of the memory in this process.",
     NULL},
    {"nbytes", get_nbytes, NULL, "Length in bytes; 0 once closed.", NULL},
    {"readonly", get_readonly, NULL, "True if peers may only read it.", NULL},
    {"__array_interface__", get_array_interface, NULL,
     "For NumPy: address, length and type.", NULL},
    {"__cuda_array_interface__", get_cuda_interface, NULL,
     "For CuPy: address, length and type.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef memory_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(MemoryObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(memory_doc,
             "Memory(context, *, nbytes=None, buffer=None, kind='host',\n"
             "       device=None, heap=None, readonly=False)\n--\n\n"
             "Memory that peers may reach: `nbytes` new ones, zeros, of a\n"
             "kind and a device or of a heap, or those of `buffer`, which is\n"
             "held.");

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, (void *)memory_doc},
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_traverse, memory_traverse},
    {Py_tp_clear, memory_clear},
    {Py_tp_methods, memory_methods},
    {Py_tp_getset, memory_getset},
    {Py_tp_members, memory_members},
    {Py_bf_getbuffer, memory_getbuffer},
    {Py_bf_releasebuffer, memory_releasebuffer},
    {0, NULL},
};

PyType_Spec memory_spec = {
    .name      = "ucp._ext.Memory",
    .basicsize = sizeof(MemoryObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = memory_slots,
};
