/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.c: what keeps a pool's buffer from being lent again. The PoolBuffer
 * has a reference, and so has each operation on it: the last one to go gives
 * the memory back, be it the user or an operation that was cancelled long ago
 * and into which bytes have landed until now. */
#include "type/type.h"

#include "buffer/pool.h"
#include "type/pool.h"

LoanObject *
loan_new(PoolObject *pool, uint32_t number)
{
    LoanObject *self = PyObject_GC_New(LoanObject, pool->st->loan_type);

    if (self == NULL) {
        return NULL;
    }
    self->pool   = (PoolObject *)Py_NewRef(pool);
    self->number = number;
    pool->st->num_loans++;
    PyObject_GC_Track((PyObject *)self);
    return self;
}

/* No tp_clear: of the cycles it is in, others break each. */
static int
loan_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((LoanObject *)op)->pool);
    return 0;
}

static void
loan_dealloc(PyObject *op)
{
    LoanObject   *self   = (LoanObject *)op;
    PyTypeObject *type   = Py_TYPE(op);
    PoolObject   *pool   = self->pool;
    uint32_t      number = self->number;

    PyObject_GC_UnTrack(op);
    pool->st->num_loans--;
    PyObject_GC_Del(op);
    Py_DECREF(type);
    pool_give_back(pool, number);
    Py_DECREF(pool);
}

static PyType_Slot loan_slots[] = {
    {Py_tp_dealloc, loan_dealloc},
    {Py_tp_traverse, loan_traverse},
    {0, NULL},
};

PyType_Spec loan_spec = {
    .name      = "ucp._ext._Loan",
    .basicsize = sizeof(LoanObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = loan_slots,
};
