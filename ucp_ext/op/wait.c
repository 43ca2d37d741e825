/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c: waiting for a number in memory of one's own. */
#include "op/wait.h"

#include "base/args.h"
#include "base/block.h"
#include "buffer/memh.h"
#include "worker/worker.h"

/* ---- arguments -----------------------------------------------------------
 */

/* An int of at most `bits` bits, not negative. */
static int
parse_unsigned(PyObject *value, unsigned bits, PyObject *type, const char *what,
               uint64_t *value_p)
{
    PyObject *index = PyNumber_Index(value);

    if (index == NULL) {
        return -1;
    }
    *value_p = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (*value_p == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Clear();
    } else if (bits == 64 || *value_p >> bits == 0) {
        return 0;
    }
    PyErr_Format(type, "the %s %R is not a number of %u bits without a sign",
                 what, value, bits);
    return -1;
}

int
wait_parse_cmp(PyObject *cmp, umx_cmp *cmp_p)
{
    static const char *const names[] = {
        [UMX_CMP_EQ] = "==", [UMX_CMP_NE] = "!=", [UMX_CMP_GT] = ">",
        [UMX_CMP_GE] = ">=", [UMX_CMP_LT] = "<",  [UMX_CMP_LE] = "<=",
    };

    for (int i = UMX_CMP_EQ; PyUnicode_Check(cmp) && i <= UMX_CMP_LE; i++) {
        if (PyUnicode_CompareWithASCIIString(cmp, names[i]) == 0) {
            *cmp_p = (umx_cmp)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "the comparison is '==', '!=', '>', '>=', '<' or '<=', "
                 "not %R",
                 cmp);
    return -1;
}

int
wait_parse(umx_condition *until, PyObject *offset, PyObject *cmp,
           PyObject *value, PyObject *bits)
{
    return (args_bits(bits, &until->size) < 0 ||
            parse_unsigned(offset, 64, PyExc_IndexError, "offset",
                           &until->offset) < 0 ||
            wait_parse_cmp(cmp, &until->cmp) < 0 ||
            parse_unsigned(value, until->size * 8, PyExc_OverflowError, "value",
                           &until->value) < 0) ?
               -1 :
               0;
}

/* ---- the operation -------------------------------------------------------
 */

/* The tail: what is waited for is in a block. */
typedef struct TAIL wait_tail {
    PyObject      *memory; /* the MemoryObject */
    umx_condition *until;  /* or NULL */
} wait_tail;
_Static_assert(sizeof(umx_condition) <= BLOCK_SIZE, "umx_condition");

static void
wait_clear(RequestObject *req)
{
    umx_condition *until = TAIL_OF(req, wait_tail)->until;

    TAIL_OF(req, wait_tail)->until = NULL;
    if (until != NULL) {
        block_put(req->worker->st, until);
    }
    Py_CLEAR(TAIL_OF(req, wait_tail)->memory);
}

static int
wait_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, wait_tail)->memory);
    return 0;
}

static umx_status
wait_until_post(RequestObject *req, const umx_op_params *params)
{
    const wait_tail *tail = TAIL_OF(req, wait_tail);
    umx_memh        *memh = ((MemoryObject *)tail->memory)->umx;

    if (memh == NULL) {
        return UMX_ERR_STALE_KEY; /* closed since the wait was made */
    }
    return umx_memh_wait_until(req->worker->umx, memh, tail->until, params,
                               &req->op);
}

static void
describe(const RequestObject *req, umx_status status, size_t capacity,
         char *text, size_t size)
{
    (void)req;
    (void)capacity;
    if (status == UMX_ERR_STALE_KEY) {
        snprintf(text, size, "the memory is closed");
    } else if (status == UMX_ERR_INVALID_PARAM) {
        snprintf(text, size, "the memory is of another context");
    }
}

const op_type op_wait = {
    .name     = "wait_until",
    .flags    = OP_RECV,
    .post     = wait_until_post,
    .describe = describe,
    .clear    = wait_clear,
    .traverse = wait_traverse,
};

PyObject *
wait_post(WorkerObject *worker, PyObject *memory, const umx_condition *until)
{
    RequestObject *req = request_new(worker, NULL, &op_wait);
    wait_tail     *tail;

    if (req == NULL) {
        return NULL;
    }
    tail         = TAIL_OF(req, wait_tail);
    tail->memory = Py_NewRef(memory);
    tail->until  = block_get(worker->st);
    if (tail->until == NULL) {
        Py_DECREF(req);
        return NULL;
    }
    *tail->until = *until;
    return request_post(req);
}
