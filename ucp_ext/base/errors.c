/* SPDX-License-Identifier: BSD-3-Clause */
/* errors.c: exceptions of statuses. */
#include "base/errors.h"

#include "base/state.h"

#include <string.h>

typedef struct exception_def {
    const char *name;
    const char *bases;
    const char *doc;
} exception_def;

static const exception_def exception_defs[NUM_EXCEPTIONS] = {
#define EXCEPTION_DEF(name, bases, doc) {#name, bases, doc},
    EXCEPTION_TABLE(EXCEPTION_DEF)
#undef EXCEPTION_DEF
};

/* Which class a status raises; UCXError for those not here. */
static const struct {
    umx_status      status;
    exception_index index;
} status_classes[] = {
    {UMX_ERR_CANCELED, EXC_UCXCanceled},
    {UMX_ERR_WITHDRAWN, EXC_UCXCanceled},
    {UMX_ERR_CLOSED, EXC_UCXCloseError},
    {UMX_ERR_PEER_CLOSED, EXC_UCXPeerClosed},
    {UMX_ERR_CONNECTION_RESET, EXC_UCXConnectionReset},
    {UMX_ERR_MESSAGE_TRUNCATED, EXC_UCXMsgTruncated},
    {UMX_ERR_LENGTH_MISMATCH, EXC_UCXMsgTruncated},
    {UMX_ERR_NOT_CONNECTED, EXC_UCXNotConnected},
    {UMX_ERR_UNREACHABLE, EXC_UCXUnreachable},
    {UMX_ERR_INVALID_ADDR, EXC_UCXUnreachable},
    {UMX_ERR_TIMED_OUT, EXC_UCXTimeout},
    {UMX_ERR_ENDPOINT_TIMEOUT, EXC_UCXConnectionReset},
    {UMX_ERR_REJECTED, EXC_UCXRejected},
    {UMX_ERR_PROTOCOL, EXC_UCXProtocolError},
    {UMX_ERR_VERSION, EXC_UCXVersionError},
    {UMX_ERR_AUTH, EXC_UCXAuthError},
    {UMX_ERR_NO_MEMORY, EXC_UCXNoMemory},
    {UMX_ERR_SEGMENT_LIMIT, EXC_UCXNoMemory},
    {UMX_ERR_DESCRIPTOR_LIMIT, EXC_UCXNoMemory},
    {UMX_ERR_THREAD_LIMIT, EXC_UCXNoMemory},
    {UMX_ERR_BUSY, EXC_UCXBusy},
    {UMX_ERR_PORT_LIMIT, EXC_UCXBusy},
    {UMX_ERR_UNKNOWN_OPTION, EXC_UCXConfigError},
    {UMX_ERR_SEG_SIZE, EXC_UCXConfigError},
    {UMX_ERR_INVALID_KEY, EXC_UCXInvalidKey},
    {UMX_ERR_STALE_KEY, EXC_UCXInvalidKey},
    {UMX_ERR_WORKER_GONE, EXC_UCXWorkerGone},
    {UMX_ERR_RANK_FAILED, EXC_UCXRankFailed},
};

/* Ours by name, else a built-in. Borrowed. */
static PyObject *
find_base(mod_state *st, const char *name)
{
    PyObject *builtins = PyEval_GetBuiltins(); /* borrowed */
    PyObject *base;

    for (int i = 0; i < NUM_EXCEPTIONS; i++) {
        if (strcmp(exception_defs[i].name, name) == 0) {
            return st->exceptions[i];
        }
    }
    base = PyDict_GetItemString(builtins, name);
    if (base == NULL) {
        PyErr_Format(PyExc_SystemError, "no exception %s", name);
    }
    return base;
}

static PyObject *
make_bases(mod_state *st, const char *text)
{
    PyObject *bases = PyList_New(0), *tuple = NULL;
    char      copy[128], *save              = NULL;

    if (bases == NULL) {
        return NULL;
    }
    strncpy(copy, text, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    for (char *word = strtok_r(copy, " ", &save); word != NULL;
         word       = strtok_r(NULL, " ", &save)) {
        PyObject *base = find_base(st, word);

        if (base == NULL || PyList_Append(bases, base) < 0) {
            goto drop_bases;
        }
    }
    tuple = PyList_AsTuple(bases);

drop_bases:
    Py_DECREF(bases);
    return tuple;
}

/* Make the attributes that every instance of a class has, until it is given
 * values. */
static PyObject *
make_defaults(exception_index index)
{
    switch (index) {
    case EXC_UCXBaseException:
        return Py_BuildValue("{s:i,s:O,s:O,s:O}", "status", 0, "op", Py_None,
                             "peer", Py_None, "errno", Py_None);
    case EXC_UCXRankFailed:
        return Py_BuildValue("{s:O,s:O,s:O,s:()}", "rank", Py_None, "op_id",
                             Py_None, "cause", Py_None, "late");
    case EXC_UCXTimeout:
        return Py_BuildValue("{s:()}", "late");
    default:
        return PyDict_New();
    }
}

static PyObject *
make_class(mod_state *st, const exception_def *def)
{
    PyObject *bases = make_bases(st, def->bases);
    PyObject *dict = NULL, *class = NULL;
    char      name[80];

    if (bases == NULL) {
        return NULL;
    }
    dict = make_defaults((exception_index)(def - exception_defs));
    if (dict != NULL) {
        snprintf(name, sizeof(name), "ucp.exceptions.%s", def->name);
        class = PyErr_NewExceptionWithDoc(name, def->doc, bases, dict);
    }
    Py_XDECREF(dict);
    Py_DECREF(bases);
    return class;
}

int
errors_init(PyObject *module, mod_state *st)
{
    for (int i = 0; i < NUM_EXCEPTIONS; i++) {
        st->exceptions[i] = make_class(st, &exception_defs[i]);
        if (st->exceptions[i] == NULL ||
            PyModule_AddObjectRef(module, exception_defs[i].name,
                                  st->exceptions[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
class_of(mod_state *st, umx_status status)
{
    if (status == UMX_ERR_WRONG_THREAD || status == UMX_ERR_FORKED) {
        return PyExc_RuntimeError; /* a mistake in the program */
    }
    if (status == UMX_ERR_OUT_OF_RANGE) {
        return PyExc_IndexError;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(status_classes); i++) {
        if (status_classes[i].status == status) {
            return st->exceptions[status_classes[i].index];
        }
    }
    return st->exceptions[EXC_UCXError];
}

/* What a peer says need not be text. */
static PyObject *
from_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *
make_text(umx_status status, const char *op, const char *detail)
{
    if (status == UMX_ERR_CLOSED) {
        return PyUnicode_FromFormat("Endpoint closed%s",
                                    detail != NULL ? detail : "");
    }
    if (status == UMX_ERR_LENGTH_MISMATCH ||
        status == UMX_ERR_MESSAGE_TRUNCATED) {
        return from_text(detail != NULL ? detail : umx_status_string(status));
    }
    if (op == NULL && detail == NULL) {
        return PyUnicode_FromString(umx_status_string(status));
    }
    if (op == NULL) {
        return PyUnicode_FromFormat("%s: %s", umx_status_string(status),
                                    detail);
    }
    if (detail == NULL) {
        return PyUnicode_FromFormat("%s: %s", op, umx_status_string(status));
    }
    return PyUnicode_FromFormat("%s: %s: %s", op, umx_status_string(status),
                                detail);
}

static PyObject *
new_with_text(mod_state *st, umx_status status, const char *op, PyObject *text)
{
    PyObject *exc = NULL, *number = NULL, *name = NULL;

    exc    = PyObject_CallOneArg(class_of(st, status), text);
    number = PyLong_FromLong(status);
    name   = (op == NULL) ? Py_NewRef(Py_None) : PyUnicode_FromString(op);
    if (exc == NULL || number == NULL || name == NULL ||
        PyObject_SetAttr(exc, NAME(st, status), number) < 0 ||
        PyObject_SetAttr(exc, NAME(st, op), name) < 0) {
        Py_CLEAR(exc);
    }
    Py_XDECREF(name);
    Py_XDECREF(number);
    return exc;
}

PyObject *
errors_new_text(mod_state *st, umx_status status, const char *op,
                const char *text)
{
    PyObject *object = from_text(text);
    PyObject *exc;

    if (object == NULL) {
        return NULL;
    }
    exc = new_with_text(st, status, op, object);
    Py_DECREF(object);
    return exc;
}

PyObject *
errors_new(mod_state *st, umx_status status, const char *op, const char *detail)
{
    PyObject *text, *exc;
    char      limits[512];

    if (status == UMX_ERR_SEGMENT_LIMIT && detail == NULL) {
        (void)umx_segment_limits(limits, sizeof(limits));
        detail = limits;
    }
    text = make_text(status, op, detail);
    if (text == NULL) {
        return NULL;
    }
    exc = new_with_text(st, status, op, text);
    Py_DECREF(text);
    return exc;
}

/* "HOST:PORT" of a socket address; its repr if it is none. */
static PyObject *
address_text(PyObject *address)
{
    PyObject   *host, *port;
    const char *name;

    if (!PyTuple_Check(address) || PyTuple_GET_SIZE(address) < 2) {
        return PyObject_Repr(address);
    }
    host = PyTuple_GET_ITEM(address, 0); /* borrowed */
    port = PyTuple_GET_ITEM(address, 1); /* borrowed */
    name = PyUnicode_Check(host) ? PyUnicode_AsUTF8(host) : "";
    if (name == NULL) {
        return NULL;
    }
    return PyUnicode_FromFormat(strchr(name, ':') != NULL ? "[%S]:%S" : "%S:%S",
                                host, port);
}

PyObject *
errors_with_errno(PyObject *exc, int error)
{
    PyObject *number;

    if (exc == NULL || error == 0) {
        return exc;
    }
    number = PyLong_FromLong(error);
    if (number == NULL || PyObject_SetAttrString(exc, "errno", number) < 0) {
        Py_CLEAR(exc);
    }
    Py_XDECREF(number);
    return exc;
}

/* What follows "ADDRESS: " in `reason`; NULL if it does not begin so. */
static const char *
behind_address(const char *reason, PyObject *address)
{
    const char *name = PyUnicode_AsUTF8(address);
    size_t      len;

    if (reason == NULL || name == NULL) {
        PyErr_Clear();
        return NULL;
    }
    len = strlen(name);
    if (strncmp(reason, name, len) != 0 ||
        strncmp(reason + len, ": ", 2) != 0) {
        return NULL;
    }
    return reason + len + 2;
}

PyObject *
errors_new_at(mod_state *st, umx_status status, const char *op,
              const errors_place *place, const char *detail)
{
    PyObject   *address = address_text(place->address), *text = NULL, *exc;
    const char *cause;

    if (address == NULL) {
        return NULL;
    }
    cause = behind_address(detail, address);
    if (cause != NULL) {
        detail = NULL; /* libumx has named the address, and says it all */
    } else {
        cause = place->error != 0 ? strerror(place->error) :
                                    umx_status_string(status);
    }
    text = PyUnicode_FromFormat("%s %s %U: %s%s%s", op, place->preposition,
                                address, cause, detail != NULL ? ": " : "",
                                detail != NULL ? detail : "");
    Py_DECREF(address);
    if (text == NULL) {
        return NULL;
    }
    exc = new_with_text(st, status, op, text);
    Py_DECREF(text);
    if (exc != NULL &&
        PyObject_SetAttr(exc, NAME(st, peer), place->address) < 0) {
        Py_CLEAR(exc);
    }
    return errors_with_errno(exc, place->error);
}

PyObject *
errors_set(PyObject *exc)
{
    if (exc != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
        Py_DECREF(exc);
    }
    return NULL;
}

PyObject *
errors_raise(mod_state *st, umx_status status, const char *op,
             const char *detail)
{
    return errors_set(errors_new(st, status, op, detail));
}

PyObject *
errors_or_text(mod_state *st, umx_status status, char **text, const char *op)
{
    PyObject *object;

    if (status != UMX_OK) {
        return errors_raise(st, status, op, NULL);
    }
    object = PyUnicode_FromString(*text);
    free(*text);
    return object;
}
