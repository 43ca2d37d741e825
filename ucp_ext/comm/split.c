/* SPDX-License-Identifier: BSD-3-Clause */
/* split.c: split. */
#include "comm/collective.h"

#include "worker/worker.h"

static umx_status
split_post(RequestObject *req, const umx_op_params *params)
{
    collective_call *call = collective_call_of(req);

    return umx_comm_split(collective_comm_of(req), call->color, call->key,
                          params, &call->made->umx, &req->op);
}

static PyObject *
split_result(RequestObject *req)
{
    CommObject *made = collective_call_of(req)->made;

    return Py_NewRef((made->umx != NULL) ? (PyObject *)made : Py_None);
}

COLLECTIVE(split, "split", split_result);

static int
parse_int(PyObject *number, const char *what, int *value_p)
{
    Py_ssize_t value = PyNumber_AsSsize_t(number, PyExc_OverflowError);

    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s is %zd, more than 32 bits", what,
                     value);
        return -1;
    }
    *value_p = (int)value;
    return 0;
}

const char comm_split_doc[] =
    "split($self, color, key=0)\n--\n\n"
    "Make a communicator of the ranks that give the same `color`, an int of 0\n"
    "or more; awaits the Communicator of this rank. Its ranks are in the\n"
    "order of their keys; ranks with equal keys stay in their order. A rank\n"
    "that gives None for `color` gets None.";

PyObject *
comm_split(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const char *const keywords[] = {"color", "key"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[2];
    RequestObject           *req;
    collective_call         *call;
    int                      color = -1, key = 0;

    if (args_parse("split", args, nargs, kwnames, keywords, 2, 2, 1, values) <
            0 ||
        (values[0] != Py_None && parse_int(values[0], "color", &color) < 0) ||
        (values[1] != NULL && parse_int(values[1], "key", &key) < 0)) {
        return NULL;
    }
    if (values[0] != Py_None && color < 0) {
        return PyErr_Format(PyExc_ValueError, "a color is 0 or more, not %d",
                            color);
    }
    req = collective_begin(self, &op_split);
    if (req == NULL) {
        return NULL;
    }
    call        = collective_call_of(req);
    call->color = color;
    call->key   = key;
    call->made  = comm_new_like(self);
    return (call->made == NULL) ? collective_give_up(req) :
                                  collective_post(req);
}
