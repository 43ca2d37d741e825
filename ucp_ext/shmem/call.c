/* SPDX-License-Identifier: BSD-3-Clause */
/* call.c: what the operations of symmetric heaps have in common: requests,
 * arguments, errors. */
#include "base/args.h"
#include "shmem/heap.h"
#include "worker/worker.h"

/* ---- requests ------------------------------------------------------------
 */

RequestObject *
shmem_request(SymmetricHeapObject *heap, const op_type *type)
{
    RequestObject *req = request_new(heap->worker, NULL, type);
    shmem_call    *call;

    if (req == NULL) {
        return NULL;
    }
    TAIL_OF(req, shmem_tail)->heap = (SymmetricHeapObject *)Py_NewRef(heap);
    call                           = block_get(req->worker->st);
    if (call == NULL) {
        Py_DECREF(req);
        return NULL;
    }
    memset(call, 0, sizeof(*call));
    call->pe                       = -1;
    TAIL_OF(req, shmem_tail)->call = call;
    return req;
}

void
shmem_request_clear(RequestObject *req)
{
    shmem_call *call = shmem_call_of(req);

    TAIL_OF(req, shmem_tail)->call = NULL;
    if (call != NULL) {
        Py_CLEAR(call->memory);
        block_put(req->worker->st, call);
    }
    Py_CLEAR(TAIL_OF(req, shmem_tail)->heap);
}

int
shmem_request_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const shmem_call *call = shmem_call_of(req);

    Py_VISIT(TAIL_OF(req, shmem_tail)->heap);
    if (call != NULL) {
        Py_VISIT(call->memory);
    }
    return 0;
}

PyObject *
shmem_request_error(RequestObject *req)
{
    const SymmetricHeapObject *heap   = TAIL_OF(req, shmem_tail)->heap;
    const shmem_call          *call   = shmem_call_of(req);
    umx_status                 status = req->status;

    if (heap == NULL) { /* one without a call */
        return errors_new(req->worker->st, status, req->type->name, NULL);
    }
    if (call != NULL && call->pe >= 0 && heap->umx != NULL) {
        status = umx_shmem_doubt(heap->umx, call->pe, status);
    }
    return joint_error(heap, status, req->type->name, NULL);
}

PyObject *
shmem_request_late(const RequestObject *req, char *text, size_t size)
{
    const SymmetricHeapObject *heap = TAIL_OF(req, shmem_tail)->heap;
    umx_comm_failure           failure;
    const char                *why;

    (void)text;
    (void)size;
    return (heap != NULL && heap->umx != NULL &&
            umx_shmem_get_failure(heap->umx, &failure, &why) &&
            failure.rank == umx_shmem_my_pe(heap->umx)) ?
               comm_late(&failure) :
               NULL;
}

/* ---- arguments -----------------------------------------------------------
 */

int
shmem_parse_memory(const SymmetricHeapObject *heap, PyObject *op,
                   const char *what, SymmetricMemoryObject **memory_p)
{
    PyTypeObject *type = heap->worker->st->symmetric_memory_type;

    if (UNLIKELY(!PyObject_TypeCheck(op, type))) {
        PyErr_Format(PyExc_TypeError,
                     "%s is an array of the symmetric heap, not %.200s", what,
                     Py_TYPE(op)->tp_name);
        return -1;
    }
    *memory_p = (SymmetricMemoryObject *)op;
    if (UNLIKELY((*memory_p)->heap != heap)) {
        PyErr_Format(PyExc_ValueError, "%s is of another symmetric heap", what);
        return -1;
    }
    return 0;
}

int
shmem_parse_number(const SymmetricHeapObject *heap, PyObject *op,
                   const char *what, SymmetricMemoryObject **memory_p)
{
    const SymmetricMemoryObject *memory;

    if (shmem_parse_memory(heap, op, what, memory_p) < 0) {
        return -1;
    }
    memory = *memory_p;
    if (UNLIKELY(memory->kind == '>')) {
        PyErr_Format(PyExc_TypeError,
                     "%s has numbers whose bytes are in the order of other "
                     "machines: use its dtype's newbyteorder('=')",
                     what);
        return -1;
    }
    if (UNLIKELY((memory->kind != 'i' && memory->kind != 'u') ||
                 (memory->itemsize != 4 && memory->itemsize != 8))) {
        PyErr_Format(PyExc_TypeError,
                     "%s has items of kind '%c' and %u bytes; it must have "
                     "integers of 4 or 8",
                     what, memory->kind, memory->itemsize);
        return -1;
    }
    if (UNLIKELY(memory->nbytes < memory->itemsize)) {
        PyErr_Format(PyExc_ValueError, "%s has no item", what);
        return -1;
    }
    return 0;
}

int
shmem_parse_pe(const SymmetricHeapObject *heap, PyObject *number, int *pe_p)
{
    Py_ssize_t pe = PyLong_CheckExact(number) ?
                        PyLong_AsSsize_t(number) :
                        PyNumber_AsSsize_t(number, PyExc_OverflowError);

    if (UNLIKELY(pe == -1 && PyErr_Occurred())) {
        return -1;
    }
    if (UNLIKELY(pe < 0 || pe >= heap->num_pes)) {
        PyErr_Format(PyExc_ValueError,
                     "pe is %zd, but the heap has the PEs 0 to %d", pe,
                     heap->num_pes - 1);
        return -1;
    }
    *pe_p = (int)pe;
    return 0;
}

int
shmem_parse_bytes(PyObject *number, uint64_t *bytes_p)
{
    *bytes_p = PyLong_AsUnsignedLongLong(number);
    return (*bytes_p == UINT64_MAX && PyErr_Occurred()) ? -1 : 0;
}

int
shmem_acquire(RequestObject *req, PyObject *buffer, buffer_acquire_fn *acquire,
              bool is_writable)
{
    if (acquire(req->worker->st, buffer, is_writable, &req->hold) < 0) {
        return -1;
    }
    if (UNLIKELY(req->hold.buf.memtype != UMX_MEMTYPE_HOST)) {
        PyErr_SetString(PyExc_TypeError,
                        "memory of a device cannot be put to, or got from, a "
                        "symmetric heap");
        return -1;
    }
    return 0;
}

/* ---- without a call ------------------------------------------------------
 */

PyObject *
shmem_done(SymmetricHeapObject *heap, const op_type *type, umx_status status)
{
    RequestObject *req = request_new(heap->worker, NULL, type);

    if (LIKELY(req != NULL)) {
        request_settle(req, status);
    }
    return (PyObject *)req;
}
