/* SPDX-License-Identifier: BSD-3-Clause */
/* echo_layer.c: a layer on top of libumx, as an extension module: active messages
 * that C code answers. No Python runs for an answer, and no GIL is needed: in a
 * block of `worker.run_in_thread()` libumx's progress thread answers, whatever
 * Python computes. echo_demo.py uses this module; README.md says how it is built.
 */
#define PY_SSIZE_T_CLEAN
#include <ucp_api.h>

#include <stdatomic.h>
#include <umx/layer.h>

enum {
    ASK_ID    = 10,  /* of layers: 8 to 15, of which libumx has 8 and 9 */
    ANSWER_ID = 100, /* of programs: Python receives it by am_recv() */
    MAX_BYTES = 4096 /* such messages come whole, without a rendezvous */
};

/* Answers, by the thread that gave them. */
static _Atomic uint64_t by_owner, by_thread;

/* ---- the layer: without the GIL, and in the progress thread ----------------
 */

static void
on_answered(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)status; /* a failure: the peer has gone */
    umx_message_drop(arg);
}

static void
on_asked(umx_ep *ep, umx_message *message, void *arg)
{
    const void   *data   = umx_message_data(message);
    umx_op_params params = umx_layer_op_params(on_answered, message);
    umx_request  *req    = NULL;
    umx_buffer    buf;

    if (data == NULL) {
        umx_message_drop(message); /* not one of ask() */
        return;
    }
    if (umx_worker_is_in_thread(arg)) {
        by_thread++;
    } else {
        by_owner++;
    }
    /* The answer is sent from where the question lies. */
    buf = umx_host_buffer(data, umx_message_info(message)->length);
    if (umx_am_send(ep, ANSWER_ID, NULL, 0, &buf, &params, &req) !=
        UMX_INPROGRESS) {
        umx_message_drop(message);
    }
}

/* ---- functions of the module -----------------------------------------------
 */

PyDoc_STRVAR(serve_doc, "serve(worker, /)\n--\n\n"
                        "Answer what comes to the endpoints of the worker.");

static PyObject *
echo_serve(PyObject *module, PyObject *object)
{
    umx_worker *worker = ucp_api->worker_get(object);
    umx_status  status;

    (void)module;
    if (worker == NULL) {
        return NULL;
    }
    status = umx_worker_set_layer(worker, ASK_ID, on_asked, worker);
    if (status != UMX_OK) {
        return ucp_api->status_raise(status, "serve");
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(ask_doc, "ask(endpoint, data, /)\n--\n\n"
                      "Send data, bytes-like, to the layer of the peer;\n"
                      "awaitable. endpoint.am_recv(id=ANSWER_ID) gets the same\n"
                      "bytes.");

static PyObject *
echo_ask(PyObject *module, PyObject *args)
{
    PyObject         *object, *data, *keep, *request;
    umx_ep           *ep;
    umx_op_params     params;
    umx_request      *op = NULL;
    umx_status        status;
    umx_buffer        buf;
    const Py_buffer  *view;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:ask", &object, &data)) {
        return NULL;
    }
    ep = ucp_api->endpoint_get(object);
    if (ep == NULL) {
        return NULL;
    }
    keep = PyMemoryView_FromObject(data);
    if (keep == NULL) {
        return NULL;
    }
    view = PyMemoryView_GET_BUFFER(keep);
    if (view->len > MAX_BYTES || !PyBuffer_IsContiguous(view, 'C')) {
        Py_DECREF(keep);
        return PyErr_Format(PyExc_ValueError,
                            "data must be contiguous, and has %zd bytes of at "
                            "most %d",
                            view->len, (int)MAX_BYTES);
    }
    request = ucp_api->request_new(object, keep, &params);
    if (request != NULL) {
        buf    = umx_host_buffer(view->buf, (size_t)view->len);
        status = umx_layer_am_send(ep, ASK_ID, NULL, 0, &buf, &params, &op);
        (void)ucp_api->request_posted(request, status, op);
    }
    Py_DECREF(keep); /* the request has it */
    return request;
}

PyDoc_STRVAR(counts_doc, "counts()\n--\n\n"
                         "How many answers the thread of the worker has given,\n"
                         "and how many libumx's progress thread.");

static PyObject *
echo_counts(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return Py_BuildValue("(KK)", (unsigned long long)by_owner,
                         (unsigned long long)by_thread);
}

static PyMethodDef methods[] = {
    {"serve", echo_serve, METH_O, serve_doc},
    {"ask", echo_ask, METH_VARARGS, ask_doc},
    {"counts", echo_counts, METH_NOARGS, counts_doc},
    {NULL, NULL, 0, NULL},
};

static int
echo_exec(PyObject *module)
{
    if (ucp_import_api() < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "ANSWER_ID", ANSWER_ID);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, echo_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base    = PyModuleDef_HEAD_INIT,
    .m_name    = "echo_layer",
    .m_doc     = "Active messages that C code answers.",
    .m_methods = methods,
    .m_slots   = slots,
};

PyMODINIT_FUNC
PyInit_echo_layer(void)
{
    return PyModuleDef_Init(&definition);
}
