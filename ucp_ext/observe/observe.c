/* SPDX-License-Identifier: BSD-3-Clause */
#include "observe/observe.h"

#include <umx/observe.h>

#include "base/numbers.h"

PyDoc_STRVAR(read_workers_doc,
             "read_workers()\n--\n\n"
             "The counters of all workers of this process, as one dict for\n"
             "each; times in nanoseconds of the epoch.");

static PyObject *
worker_as_dict(const umx_worker_numbers *numbers)
{
    PyObject *dict = numbers_as_dict(&numbers->stats);
    PyObject *whole;

    if (dict == NULL) {
        return NULL;
    }
    whole = Py_BuildValue("{s:K,s:K,s:K,s:O}", "number", numbers->number,
                          "begun_ns", numbers->begun_ns, "drained_ns",
                          numbers->drained_ns, "statistics", dict);
    Py_DECREF(dict);
    return whole;
}

static PyObject *
list_of(const umx_worker_numbers *numbers, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = worker_as_dict(&numbers[i]);

        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        }
    }
    return list;
}

static PyObject *
read_workers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    umx_worker_numbers *numbers = NULL;
    PyObject           *list;
    size_t              room = 0, n;

    /* Workers may be made in between. */
    while ((n = umx_observe_workers(numbers, room)) > room) {
        umx_worker_numbers *more = PyMem_Realloc(numbers, n * sizeof(*more));

        if (more == NULL) {
            PyMem_Free(numbers);
            return PyErr_NoMemory();
        }
        numbers = more;
        room    = n;
    }
    list = list_of(numbers, n);
    PyMem_Free(numbers);
    return list;
}

PyMethodDef observe_methods[] = {
    {"read_workers", read_workers, METH_NOARGS, read_workers_doc},
    {NULL, NULL, 0, NULL},
};
