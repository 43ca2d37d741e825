/* SPDX-License-Identifier: BSD-3-Clause */
/* gather.c: the callback by which ucp.gather() hears of what it waits for. */
#include "request/gather.h"

#include "request/internal.h"

/* What the callback has, a list. */
enum {
    GATHER_WAITER, /* a future that is done when the wait is over */
    GATHER_LEFT,   /* operations that are not done, an int */
    GATHER_FAILED, /* the first one that has failed; or None */
    GATHER_IS_ALL, /* bool: failures do not end the wait */
    GATHER_SIZE
};

static bool
is_request(PyObject *object)
{
    return Py_TYPE(object)->tp_dealloc == request_dealloc;
}

/* Has a request ended well, as far as can be known without making its result?
 */
static bool
has_ended_well(PyObject *object)
{
    const RequestObject *req = (RequestObject *)object;

    return req->state == REQUEST_DONE && req->status == UMX_OK;
}

/* Has an operation ended without a result? -1 with an exception. To ask for the
 * exception tells that somebody has heard of it. */
static int
has_failed(PyObject *future)
{
    PyObject *answer;
    int       failed;

    if (is_request(future) && has_ended_well(future)) {
        return 0;
    }
    answer = PyObject_CallMethod(future, "cancelled", NULL);
    failed = (answer == NULL) ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (failed != 0) {
        return failed;
    }
    answer = PyObject_CallMethod(future, "exception", NULL);
    failed = (answer == NULL) ? -1 : answer != Py_None;
    Py_XDECREF(answer);
    return failed;
}

/* End the wait, unless it is over. */
static PyObject *
wake(PyObject *waiter)
{
    PyObject *answer = PyObject_CallMethod(waiter, "done", NULL);
    int       is_done;

    if (answer == NULL) {
        return NULL;
    }
    is_done = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    if (is_done != 0) {
        return (is_done < 0) ? NULL : Py_NewRef(Py_None);
    }
    return PyObject_CallMethod(waiter, "set_result", "O", Py_None);
}

static PyObject *
on_done(PyObject *op, PyObject *future)
{
    long      left   = PyLong_AsLong(PyList_GET_ITEM(op, GATHER_LEFT)) - 1;
    PyObject *number = PyLong_FromLong(left);
    bool      is_over;

    if (number == NULL || PyList_SetItem(op, GATHER_LEFT, number) < 0) {
        return NULL;
    }
    is_over = left == 0;
    if (PyList_GET_ITEM(op, GATHER_IS_ALL) == Py_False) {
        int failed = has_failed(future);

        if (failed < 0) {
            return NULL;
        }
        if (failed && PyList_GET_ITEM(op, GATHER_FAILED) == Py_None) {
            if (PyList_SetItem(op, GATHER_FAILED, Py_NewRef(future)) < 0) {
                return NULL;
            }
            is_over = true;
        }
    }
    return is_over ? wake(PyList_GET_ITEM(op, GATHER_WAITER)) :
                     Py_NewRef(Py_None);
}

static PyMethodDef on_done_def = {"on_done", on_done, METH_O, NULL};

PyDoc_STRVAR(gather_doc,
             "gather_callback(state, /)\n--\n\n"
             "The callback of operations that ucp.gather() waits for. `state`\n"
             "is [waiter, number of operations, None, is_for_all]; the first\n"
             "that fails takes the place of None.");

static PyObject *
gather_callback(PyObject *module, PyObject *state)
{
    (void)module;
    if (!PyList_CheckExact(state) || PyList_GET_SIZE(state) != GATHER_SIZE ||
        !PyLong_CheckExact(PyList_GET_ITEM(state, GATHER_LEFT)) ||
        !PyBool_Check(PyList_GET_ITEM(state, GATHER_IS_ALL))) {
        return PyErr_Format(PyExc_TypeError,
                            "[waiter, number, None, is_for_all]");
    }
    return PyCFunction_New(&on_done_def, state);
}

PyDoc_STRVAR(results_doc,
             "gather_results(ops, /)\n--\n\n"
             "The results of a tuple of requests that have all ended well, a\n"
             "list; otherwise None.");

static PyObject *
gather_results(PyObject *module, PyObject *ops)
{
    Py_ssize_t count;
    PyObject  *results;

    (void)module;
    if (!PyTuple_CheckExact(ops)) {
        return PyErr_Format(PyExc_TypeError, "a tuple is expected");
    }
    count = PyTuple_GET_SIZE(ops);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *op = PyTuple_GET_ITEM(ops, i);

        if (!is_request(op) || !has_ended_well(op)) {
            Py_RETURN_NONE;
        }
    }
    results = PyList_New(count);
    for (Py_ssize_t i = 0; i < count && results != NULL; i++) {
        RequestObject *req   = (RequestObject *)PyTuple_GET_ITEM(ops, i);
        PyObject      *value = request_take_or_raise(req);

        if (value != NULL) {
            PyList_SET_ITEM(results, i, value);
        } else {
            Py_CLEAR(results);
        }
    }
    return results;
}

PyDoc_STRVAR(failed_doc,
             "has_failed(future, /)\n--\n\n"
             "Has a future that is done no result? A message that a request\n"
             "has received is not handed out by this.");

static PyObject *
gather_has_failed(PyObject *module, PyObject *future)
{
    int failed = has_failed(future);

    (void)module;
    return (failed < 0) ? NULL : PyBool_FromLong(failed);
}

PyMethodDef gather_methods[] = {
    {"has_failed", gather_has_failed, METH_O, failed_doc},
    {"gather_results", gather_results, METH_O, results_doc},
    {"gather_callback", gather_callback, METH_O, gather_doc},
    {NULL, NULL, 0, NULL},
};
