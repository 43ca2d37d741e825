/* SPDX-License-Identifier: BSD-3-Clause */
/* module.c: the module `ucp._ext`: its types, exceptions and functions. All
 * that it owns is in mod_state. */
#include "base/errors.h"

#include "base/event.h"
#include "base/log.h"
#include "capi/capsule.h"
#include "comm/bytes_block.h"
#include "comm/close_all.h"
#include "comm/communicator.h"
#include "comm/pickled.h"
#include "comm/type.h"
#include "moe/moe_buffer.h"
#include "moe/moe_call.h"
#include "moe/moe_rows.h"
#include "observe/observe.h"
#include "op/low_level.h"
#include "outputs/block.h"
#include "outputs/fetch.h"
#include "outputs/outputs.h"
#include "outputs/reader.h"
#include "outputs/writer.h"
#include "shmem/heap.h"
#include "proxy/proxy.h"
#include "proxy/ring.h"
#include "request/callback.h"
#include "request/gather.h"
#include "request/request.h"
#include "shuffle/chunk.h"
#include "shuffle/partition.h"
#include "shuffle/type.h"
#include "topology/topology.h"
#include "type/type.h"
#include "worker/worker.h"

/* ---- functions -----------------------------------------------------------
 */

PyDoc_STRVAR(tag_hash_doc,
             "tag_hash(data, /)\n--\n\n"
             "A 64-bit tag from bytes, the same in every process.");

static PyObject *
module_tag_hash(PyObject *module, PyObject *data)
{
    (void)module;
    if (!PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, got %.200s",
                     Py_TYPE(data)->tp_name);
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        umx_tag_hash(PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data)));
}

PyDoc_STRVAR(live_objects_doc,
             "live_objects()\n--\n\n"
             "How many objects of each type are alive, by name.");

static PyObject *
module_live_objects(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    mod_state *st = PyModule_GetState(module);

    return Py_BuildValue(
        "{s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n}", "requests", st->num_requests,
        "contexts", st->num_contexts, "workers", st->num_workers, "endpoints",
        st->num_endpoints, "listeners", st->num_listeners, "messages",
        st->num_messages, "memories", st->num_memories, "remotes",
        st->num_remotes, "loans", st->num_loans);
}

PyDoc_STRVAR(exception_from_status_doc,
             "exception_from_status(status, text, /)\n--\n\n"
             "The exception that stands for a status number.");

static PyObject *
module_exception_from_status(PyObject *module, PyObject *args)
{
    const char *text;
    int         status;

    if (!PyArg_ParseTuple(args, "is:exception_from_status", &status, &text)) {
        return NULL;
    }
    return errors_new(PyModule_GetState(module), (umx_status)status, NULL,
                      text);
}

PyDoc_STRVAR(config_options_doc,
             "config_options(options=None, env_first=False)\n--\n\n"
             "UCX's options, without prefix, as a Context would have them.");

PyDoc_STRVAR(ucx_version_doc, "ucx_version()\n--\n\n"
                              "(major, minor, patch) of the loaded UCX.");

static PyObject *
module_ucx_version(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    unsigned major, minor, release;

    (void)module;
    umx_ucx_version(&major, &minor, &release);
    return Py_BuildValue("(III)", major, minor, release);
}

PyDoc_STRVAR(cuda_is_present_doc, "cuda_is_present()\n--\n\n"
                                  "Is there NVIDIA's driver, and a device?");

static PyObject *
module_cuda_is_present(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(umx_cuda_is_present());
}

static PyMethodDef module_methods[] = {
    {"tag_hash", module_tag_hash, METH_O, tag_hash_doc},
    {"live_objects", module_live_objects, METH_NOARGS, live_objects_doc},
    {"exception_from_status", module_exception_from_status, METH_VARARGS,
     exception_from_status_doc},
    {"set_log_handler", log_set_handler, METH_VARARGS, log_set_handler_doc},
    {"log_catch_up", log_catch_up, METH_NOARGS, log_catch_up_doc},
    {"close_communicators", comm_close_all, METH_VARARGS, comm_close_all_doc},
    {"set_current_worker", worker_set_current, METH_O, worker_set_current_doc},
    {"config_options", (PyCFunction)(void (*)(void))context_config_options,
     METH_VARARGS | METH_KEYWORDS, config_options_doc},
    {"cuda_is_present", module_cuda_is_present, METH_NOARGS,
     cuda_is_present_doc},
    {"ucx_version", module_ucx_version, METH_NOARGS, ucx_version_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the sentinels ANY and IN_PLACE ---------------------------------------
 */

#define SENTINEL(noun, text, type_name, doc)                         \
    static PyObject *noun##_repr(PyObject *Py_UNUSED(self))          \
    {                                                                \
        return PyUnicode_FromString("ucp." text);                    \
    }                                                                \
                                                                     \
    static PyObject *noun##_reduce(PyObject *Py_UNUSED(self),        \
                                   PyObject *Py_UNUSED(ignored))     \
    {                                                                \
        return PyUnicode_FromString(text);                           \
    }                                                                \
                                                                     \
    static PyMethodDef noun##_methods[] = {                          \
        {"__reduce__", noun##_reduce, METH_NOARGS, NULL},            \
        {NULL, NULL, 0, NULL},                                       \
    };                                                               \
                                                                     \
    static PyType_Slot noun##_slots[] = {                            \
        {Py_tp_doc, (void *)(doc)},                                  \
        {Py_tp_repr, noun##_repr},                                   \
        {Py_tp_methods, noun##_methods},                             \
        {0, NULL},                                                   \
    };                                                               \
                                                                     \
    static PyType_Spec noun##_spec = {                               \
        .name      = "ucp._ext." type_name,                          \
        .basicsize = sizeof(PyObject),                               \
        .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | \
                 Py_TPFLAGS_DISALLOW_INSTANTIATION,                  \
        .slots = noun##_slots,                                       \
    }

SENTINEL(any, "ANY", "AnyTag", "Matches a message of any tag.");
SENTINEL(in_place, "IN_PLACE", "InPlace",
         "What a rank contributes lies in the buffer that it receives into.");

static int
add_sentinel(PyObject *module, PyType_Spec *spec, const char *name,
             PyObject **sentinel_p)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec,
                                                                  NULL);

    if (type == NULL) {
        return -1;
    }
    *sentinel_p = type->tp_alloc(type, 0);
    if (*sentinel_p == NULL || PyModule_AddType(module, type) < 0 ||
        PyModule_AddObjectRef(module, name, *sentinel_p) < 0) {
        Py_DECREF(type);
        return -1;
    }
    Py_DECREF(type);
    return 0;
}

/* ---- initialisation ------------------------------------------------------
 */

static int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type_p)
{
    *type_p = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return (*type_p == NULL) ? -1 : PyModule_AddType(module, *type_p);
}

static int
add_status(PyObject *module, mod_state *st)
{
    st->comm_status_type = PyStructSequence_NewType(&comm_status_desc);
    return (st->comm_status_type == NULL) ?
               -1 :
               PyModule_AddType(module, st->comm_status_type);
}

static int
intern_names(mod_state *st)
{
    static const char *const texts[] = {
#define NAME_TEXT(name) #name,
        NAME_TABLE(NAME_TEXT)
#undef NAME_TEXT
    };

    for (size_t i = 0; i < Py_ARRAY_LENGTH(texts); i++) {
        st->names[i] = PyUnicode_InternFromString(texts[i]);
        if (st->names[i] == NULL) {
            return -1;
        }
    }
    st->context_kwname = Py_BuildValue("(s)", "context");
    st->dumps_kwname   = Py_BuildValue("(s)", "buffer_callback");
    return (st->context_kwname == NULL || st->dumps_kwname == NULL) ? -1 : 0;
}

static int
import_asyncio(mod_state *st)
{
    PyObject *module = PyImport_ImportModule("asyncio.exceptions");

    if (module == NULL) {
        return -1;
    }
    st->cancelled_error     = PyObject_GetAttrString(module, "CancelledError");
    st->invalid_state_error = PyObject_GetAttrString(module,
                                                     "InvalidStateError");
    Py_DECREF(module);
    module = PyImport_ImportModule("asyncio.events");
    if (module == NULL) {
        return -1;
    }
    st->get_running_loop = PyObject_GetAttrString(module, "_get_running_loop");
    Py_DECREF(module);
    return (st->cancelled_error == NULL || st->invalid_state_error == NULL ||
            st->get_running_loop == NULL) ?
               -1 :
               0;
}

/* Refuse a process without the GIL, which is the lock of all objects here. A
 * CPython that can do without it switches it on for this module, unless the
 * process was started with the GIL off. -1 with an exception. */
static int
check_gil(void)
{
    PyObject *function = PySys_GetObject("_is_gil_enabled"); /* borrowed */
    PyObject *result;
    int       is_enabled;

    if (function == NULL) {
        return 0; /* CPython 3.12 and older */
    }
    result = PyObject_CallNoArgs(function);
    if (result == NULL) {
        return -1;
    }
    is_enabled = PyObject_IsTrue(result);
    Py_DECREF(result);
    if (is_enabled == 0) {
        PyErr_SetString(
            PyExc_ImportError,
            "ucp needs the GIL, and this process was started "
            "without it: unset PYTHON_GIL=0, or leave out -X gil=0");
    }
    return (is_enabled == 1) ? 0 : -1;
}

static int
module_exec(PyObject *module)
{
    mod_state *st = PyModule_GetState(module);

    if (check_gil() < 0 || intern_names(st) < 0 || import_asyncio(st) < 0 ||
        errors_init(module, st) < 0 ||
        add_sentinel(module, &any_spec, "ANY", &st->any) < 0 ||
        add_sentinel(module, &in_place_spec, "IN_PLACE", &st->in_place) < 0 ||
        add_status(module, st) < 0 || request_init_types(module, st) < 0) {
        return -1;
    }
#define ADD_TYPE(name)                                          \
    if (add_type(module, &name##_spec, &st->name##_type) < 0) { \
        return -1;                                              \
    }
    TYPE_TABLE(ADD_TYPE)
#undef ADD_TYPE
    if (PyModule_AddFunctions(module, callback_methods) < 0 ||
        PyModule_AddFunctions(module, partition_methods) < 0 ||
        PyModule_AddFunctions(module, moe_methods) < 0 ||
        PyModule_AddFunctions(module, pickled_methods) < 0 ||
        PyModule_AddFunctions(module, gather_methods) < 0 ||
        PyModule_AddFunctions(module, observe_methods) < 0 ||
        PyModule_AddFunctions(module, topology_methods) < 0 ||
        capsule_init(module) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, low_level_methods);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    mod_state *st = PyModule_GetState(module);

    Py_VISIT(st->request_type);
    Py_VISIT(st->future_request_type);
    Py_VISIT(st->future_await_type);
    Py_VISIT(st->comm_status_type);
    Py_VISIT(st->comm_status);
#define VISIT_TYPE(name) Py_VISIT(st->name##_type);
    TYPE_TABLE(VISIT_TYPE)
#undef VISIT_TYPE
    /* Each object on the free list has a reference to its type. */
    for (unsigned i = 0; i < st->num_free_requests; i++) {
        Py_VISIT(st->request_type);
    }
    Py_VISIT(st->any);
    Py_VISIT(st->in_place);
    for (int i = 0; i < NUM_EXCEPTIONS; i++) {
        Py_VISIT(st->exceptions[i]);
    }
    Py_VISIT(st->pickle_dumps);
    Py_VISIT(st->pickle_loads);
    Py_VISIT(st->array_dumps);
    Py_VISIT(st->array_modules);
    Py_VISIT(st->keep_buffer);
    Py_VISIT(st->cancelled_error);
    Py_VISIT(st->invalid_state_error);
    Py_VISIT(st->stop_iteration);
    Py_VISIT(st->log_handler);
    Py_VISIT(st->log_get_level);
    Py_VISIT(st->get_running_loop);
    Py_VISIT(st->current_worker);
    return 0;
}

static int
module_clear(PyObject *module)
{
    mod_state *st = PyModule_GetState(module);

    if (st->log_handler != NULL) {
        event_watch_log(false); /* the interpreter goes, lines may come */
    }
    Py_CLEAR(st->get_running_loop);
    Py_CLEAR(st->current_worker);
    request_clear_free(st);
    Py_CLEAR(st->request_type); /* blocks are kept no more */
    Py_CLEAR(st->future_request_type);
    Py_CLEAR(st->future_await_type);
    block_clear_free(st);
    Py_CLEAR(st->comm_status_type);
    Py_CLEAR(st->comm_status);
#define CLEAR_TYPE(name) Py_CLEAR(st->name##_type);
    TYPE_TABLE(CLEAR_TYPE)
#undef CLEAR_TYPE
    Py_CLEAR(st->any);
    Py_CLEAR(st->in_place);
    for (int i = 0; i < NUM_EXCEPTIONS; i++) {
        Py_CLEAR(st->exceptions[i]);
    }
    for (int i = 0; i < NUM_NAMES; i++) {
        Py_CLEAR(st->names[i]);
    }
    Py_CLEAR(st->context_kwname);
    Py_CLEAR(st->dumps_kwname);
    Py_CLEAR(st->pickle_dumps);
    Py_CLEAR(st->pickle_loads);
    Py_CLEAR(st->array_dumps);
    Py_CLEAR(st->array_modules);
    Py_CLEAR(st->keep_buffer);
    Py_CLEAR(st->cancelled_error);
    Py_CLEAR(st->invalid_state_error);
    Py_CLEAR(st->stop_iteration);
    Py_CLEAR(st->log_handler);
    Py_CLEAR(st->log_get_level);
    return 0;
}

static void
module_free(void *module)
{
    (void)module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    /* The GIL is the lock of all objects here: docs/install.md. */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

PyDoc_STRVAR(module_doc, "The part of ucp that is written in C.");

PyModuleDef ucp_ext_module = {
    PyModuleDef_HEAD_INIT,         .m_name = "ucp._ext",
    .m_doc = module_doc,           .m_size = sizeof(mod_state),
    .m_methods = module_methods,   .m_slots = module_slots,
    .m_traverse = module_traverse, .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__ext(void)
{
    return PyModuleDef_Init(&ucp_ext_module);
}
