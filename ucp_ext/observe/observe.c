/* SPDX-License-Identifier: BSD-3-Clause */
#include "observe/observe.h"

#include <umx/observe.h>
#include <umx/trace.h>

#include "base/numbers.h"

/* ---- counters ------------------------------------------------------------
 */

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
    whole = Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:N,s:O}", "number", numbers->number, "begun_ns",
        numbers->begun_ns, "drained_ns", numbers->drained_ns, "rank",
        numbers->rank, "num_ranks", numbers->num_ranks, "communicator",
        PyUnicode_DecodeUTF8(numbers->communicator,
                             strlen(numbers->communicator), "replace"),
        "statistics", dict);
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

/* ---- latencies -----------------------------------------------------------
 */

PyDoc_STRVAR(measure_latency_doc,
             "measure_latency(is_on=True, /)\n--\n\n"
             "Measure how long operations take that begin from now on, or no\n"
             "more.");

static PyObject *
measure_latency(PyObject *Py_UNUSED(module), PyObject *args)
{
    int is_on = 1;

    if (!PyArg_ParseTuple(args, "|p:measure_latency", &is_on)) {
        return NULL;
    }
    umx_latency_enable(is_on != 0);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(read_latencies_doc,
             "read_latencies()\n--\n\n"
             "The histograms of all workers: a list of tuples (worker, name,\n"
             "count, sum, min, max, buckets), with a dict of buckets that are\n"
             "not empty, by the nanoseconds that they are below.");

static PyObject *
buckets_of(const umx_histogram *histogram)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict != NULL && i < UMX_HISTOGRAM_BUCKETS; i++) {
        uint64_t  n = histogram->counts[i];
        PyObject *limit, *count;

        if (n == 0) {
            continue;
        }
        limit = PyLong_FromUnsignedLongLong(umx_histogram_limit(i));
        count = PyLong_FromUnsignedLongLong(n);
        if (limit == NULL || count == NULL ||
            PyDict_SetItem(dict, limit, count) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(limit);
        Py_XDECREF(count);
    }
    return dict;
}

typedef struct copied {
    uint64_t      worker;
    const char   *name;
    umx_histogram histogram;
} copied;

typedef struct copies {
    copied *all; /* NULL: out of memory, or none yet */
    size_t  n;
    bool    is_failed;
} copies;

/* Called with a lock of libumx: nothing of Python that could wait. */
static void
copy_histogram(uint64_t worker, const char *name,
               const umx_histogram *histogram, void *arg)
{
    copies *to   = arg;
    copied *more = PyMem_RawRealloc(to->all, (to->n + 1) * sizeof(*more));

    if (more == NULL) {
        to->is_failed = true;
        return;
    }
    to->all            = more;
    more[to->n].worker = worker;
    more[to->n].name   = name;
    umx_histogram_init(&more[to->n].histogram);
    umx_histogram_merge(&more[to->n].histogram, histogram);
    to->n++;
}

static PyObject *
latency_as_tuple(const copied *it)
{
    const umx_histogram *h       = &it->histogram;
    PyObject            *buckets = buckets_of(h);

    return (buckets == NULL) ?
               NULL :
               Py_BuildValue("(KsKKKKN)", it->worker, it->name, h->count,
                             h->sum_ns, (h->count == 0) ? 0 : h->min_ns,
                             h->max_ns, buckets);
}

static PyObject *
read_latencies(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    copies    read = {0};
    PyObject *list;

    umx_latency_each(copy_histogram, &read);
    list = read.is_failed ? PyErr_NoMemory() : PyList_New(0);
    for (size_t i = 0; list != NULL && i < read.n; i++) {
        PyObject *item = latency_as_tuple(&read.all[i]);

        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    PyMem_RawFree(read.all);
    return list;
}

/* ---- traces --------------------------------------------------------------
 */

PyDoc_STRVAR(trace_start_doc,
             "trace_start(num_events, /)\n--\n\n"
             "Begin to record the last events. False: a trace has begun\n"
             "already.");

static PyObject *
trace_start(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_ssize_t num_events;
    umx_status status;

    if (!PyArg_ParseTuple(args, "n:trace_start", &num_events)) {
        return NULL;
    }
    status = (num_events > 0) ? umx_trace_start((size_t)num_events) :
                                UMX_ERR_INVALID_PARAM;
    switch (status) {
    case UMX_OK:
        Py_RETURN_TRUE;
    case UMX_ERR_BUSY:
        Py_RETURN_FALSE;
    case UMX_ERR_NO_MEMORY:
        PyErr_Format(PyExc_MemoryError,
                     "there is no memory for a trace of %zd events: pass a "
                     "smaller max_events",
                     num_events);
        return NULL;
    default:
        PyErr_Format(PyExc_ValueError,
                     "a trace has between 1 and 67108864 events, not %zd",
                     num_events);
        return NULL;
    }
}

PyDoc_STRVAR(trace_stop_doc, "trace_stop()\n--\n\nRecord no more.");

static PyObject *
trace_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    umx_trace_stop();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(trace_release_doc,
             "trace_release()\n--\n\n"
             "Give back the memory of the trace that has been stopped.");

static PyObject *
trace_release(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    umx_trace_release();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(trace_query_doc,
             "trace_query()\n--\n\n"
             "(events, dropped, begin_ns, end_ns, realtime_ns) of the trace\n"
             "that has been stopped.");

static PyObject *
trace_query(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    umx_trace_info info;

    umx_trace_query(&info);
    return Py_BuildValue("(KKKKK)", info.num_events, info.num_dropped,
                         info.begin_ns, info.end_ns, info.realtime_ns);
}

PyDoc_STRVAR(
    trace_read_doc,
    "trace_read(first, number, /)\n--\n\n"
    "A list of such events of that trace, the oldest first: tuples\n"
    "(time_ns, begin_ns, operation, endpoint, bytes, tag, name,\n"
    "worker, status, kind, flags). Those that were lost are left out.");

static PyObject *
event_as_tuple(const umx_trace_event *event)
{
    return Py_BuildValue(
        "(KKKKKKzIiii)", event->time_ns, event->begin_ns, event->operation,
        event->endpoint, event->bytes, event->tag, event->name, event->worker,
        (int)event->status, (int)event->kind, (int)event->flags);
}

static PyObject *
trace_read(PyObject *Py_UNUSED(module), PyObject *args)
{
    umx_trace_event events[64];
    Py_ssize_t      first, left;
    PyObject       *list;
    size_t          n = 1;

    if (!PyArg_ParseTuple(args, "nn:trace_read", &first, &left)) {
        return NULL;
    }
    list = PyList_New(0);
    while (list != NULL && left > 0 && n != 0) {
        size_t max = (left < 64) ? (size_t)left : 64;

        n = umx_trace_read(events, (size_t)first, max);
        first += (Py_ssize_t)n;
        left -= (Py_ssize_t)n;
        for (size_t i = 0; list != NULL && i < n; i++) {
            PyObject *item = NULL;

            if (events[i].kind == 0) {
                continue;
            }
            item = event_as_tuple(&events[i]);
            if (item == NULL || PyList_Append(list, item) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(item);
        }
    }
    return list;
}

PyMethodDef observe_methods[] = {
    {"read_workers", read_workers, METH_NOARGS, read_workers_doc},
    {"measure_latency", measure_latency, METH_VARARGS, measure_latency_doc},
    {"read_latencies", read_latencies, METH_NOARGS, read_latencies_doc},
    {"trace_start", trace_start, METH_VARARGS, trace_start_doc},
    {"trace_stop", trace_stop, METH_NOARGS, trace_stop_doc},
    {"trace_release", trace_release, METH_NOARGS, trace_release_doc},
    {"trace_query", trace_query, METH_NOARGS, trace_query_doc},
    {"trace_read", trace_read, METH_VARARGS, trace_read_doc},
    {NULL, NULL, 0, NULL},
};
