/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c: the type of contexts. */
#include "type/type.h"

#include "base/event.h"
#include "base/log.h"
#include "object/context.h"

#include <string.h>

/* ---- options -------------------------------------------------------------
 */

/* A dict of str to str as umx_option; the strings stay the dict's. */
static umx_option *
parse_options(PyObject *dict, size_t *count_p)
{
    Py_ssize_t  count = PyDict_Size(dict), pos = 0, i = 0;
    PyObject   *key, *value;
    umx_option *options = PyMem_Calloc((size_t)count + 1, sizeof(*options));

    if (options == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    while (PyDict_Next(dict, &pos, &key, &value)) {
        if (!PyUnicode_Check(key) || !PyUnicode_Check(value)) {
            PyErr_Format(PyExc_TypeError,
                         "options must be str to str, got %R: %R", key, value);
            goto free_options;
        }
        options[i].key   = PyUnicode_AsUTF8(key);
        options[i].value = PyUnicode_AsUTF8(value);
        if (options[i].key == NULL || options[i].value == NULL) {
            goto free_options;
        }
        i++;
    }
    *count_p = (size_t)count;
    return options;

free_options:
    PyMem_Free(options);
    return NULL;
}

static int
use_options(umx_context_params *params, PyObject *dict, int env_first)
{
    if (dict != NULL && dict != Py_None) {
        if (!PyDict_Check(dict)) {
            PyErr_Format(PyExc_TypeError,
                         "options must be a dict or None, not %.200s",
                         Py_TYPE(dict)->tp_name);
            return -1;
        }
        params->options = parse_options(dict, &params->num_options);
        if (params->options == NULL) {
            return -1;
        }
        params->field_mask |= UMX_CONTEXT_FIELD_OPTIONS;
    }
    if (env_first) {
        params->field_mask |= UMX_CONTEXT_FIELD_FLAGS;
        params->flags = UMX_CONTEXT_FLAG_ENV_FIRST;
    }
    return 0;
}

/* UCXConfigError naming the option, or what the status says. */
static void
raise_option_error(mod_state *st, umx_status status,
                   const umx_context_params *params, int bad_option)
{
    PyObject *class = st->exceptions[EXC_UCXConfigError];

    if (bad_option < 0) {
        (void)errors_raise(st, status, "init", NULL);
    } else if (status == UMX_ERR_UNKNOWN_OPTION) {
        PyErr_Format(class, "UCX has no option \"%s\"",
                     params->options[bad_option].key);
    } else if (status == UMX_ERR_SEG_SIZE) {
        PyErr_Format(class, "option \"%s\" = \"%s\": %s",
                     params->options[bad_option].key,
                     params->options[bad_option].value,
                     umx_status_string(status));
    } else {
        PyErr_Format(class, "UCX refuses option \"%s\" = \"%s\"",
                     params->options[bad_option].key,
                     params->options[bad_option].value);
    }
}

/* ---- config --------------------------------------------------------------
 */

#define CONFIG_TABLE(X)    \
    X(spin_ns)             \
    X(drain_ns)            \
    X(rndv_thresh_shm)     \
    X(rndv_thresh_net)     \
    X(cma_min)             \
    X(cma_max)             \
    X(credit_bytes)        \
    X(credit_bytes_max)    \
    X(credit_messages)     \
    X(credit_messages_max) \
    X(credit_rndv)         \
    X(channels_max)        \
    X(close_timeout_ns)    \
    X(connect_timeout_ns)  \
    X(heartbeat_ns)        \
    X(keepalive_ns)        \
    X(goodbye_bytes)       \
    X(cancel_bytes)        \
    X(cancel_timeout_ns)   \
    X(rma_ucx)             \
    X(frames_copy_max)     \
    X(frames_alone_min)    \
    X(frames_max)          \
    X(frames_bytes_max)

typedef struct config_field {
    const char *name;
    size_t      offset;
    size_t      size;
} config_field;

static const config_field config_fields[] = {
#define CONFIG_FIELD(name) \
    {#name, offsetof(umx_config, name), sizeof(((umx_config *)0)->name)},
    CONFIG_TABLE(CONFIG_FIELD)
#undef CONFIG_FIELD
};

static int
set_config_field(umx_config *config, const config_field *field, PyObject *value)
{
    uint64_t number;
    uint32_t small;

    if (!PyLong_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s",
                     field->name, Py_TYPE(value)->tp_name);
        return -1;
    }
    number = PyLong_AsUnsignedLongLong(value);
    if ((number == (uint64_t)-1 && PyErr_Occurred()) ||
        (field->size == 4 && number > UINT32_MAX)) {
        PyErr_Format(PyExc_OverflowError, "%s = %R is out of range",
                     field->name, value);
        return -1;
    }
    small = (uint32_t)number;
    memcpy((char *)config + field->offset,
           field->size == 4 ? (void *)&small : (void *)&number, field->size);
    return 0;
}

static unsigned long long
config_number(const umx_config *config, const config_field *field)
{
    const char *at = (const char *)config + field->offset;
    uint64_t    number;
    uint32_t    small;

    if (field->size == 4) {
        memcpy(&small, at, sizeof(small));
        return small;
    }
    memcpy(&number, at, sizeof(number));
    return number;
}

/* Raise the exception for a configuration that umx_config_check() refuses,
 * with the number that was given. */
static void
raise_config_error(mod_state *st, const umx_config *config)
{
    const char *text = umx_config_check(config);
    PyObject   *type = st->exceptions[EXC_UCXConfigError];

    for (size_t i = 0; i < Py_ARRAY_LENGTH(config_fields); i++) {
        const config_field *field = &config_fields[i];
        size_t              len   = strlen(field->name);

        if (strncmp(text, field->name, len) == 0 && text[len] == ' ') {
            PyErr_Format(type, "config: %s, not %llu", text,
                         config_number(config, field));
            return;
        }
    }
    PyErr_Format(type, "config: %s", text);
}

static int
set_token(umx_config *config, PyObject *value)
{
    if (value == Py_None) {
        return 0;
    }
    if (!PyBytes_Check(value) || PyBytes_GET_SIZE(value) < 1 ||
        PyBytes_GET_SIZE(value) > 256) {
        PyErr_SetString(PyExc_ValueError, "token must be 1 to 256 bytes");
        return -1;
    }
    config->token     = (const uint8_t *)PyBytes_AS_STRING(value);
    config->token_len = (size_t)PyBytes_GET_SIZE(value);
    return 0;
}

static const config_field *
find_config_field(PyObject *key)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(config_fields); i++) {
        if (PyUnicode_CompareWithASCIIString(key, config_fields[i].name) == 0) {
            return &config_fields[i];
        }
    }
    return NULL;
}

static int
parse_config(mod_state *st, PyObject *dict, umx_config *config)
{
    PyObject  *key, *value;
    Py_ssize_t pos = 0;

    umx_config_default(config);
    if (dict == NULL || dict == Py_None) {
        return 0;
    }
    if (!PyDict_Check(dict)) {
        PyErr_Format(PyExc_TypeError,
                     "config must be a dict or None, not %.200s",
                     Py_TYPE(dict)->tp_name);
        return -1;
    }
    while (PyDict_Next(dict, &pos, &key, &value)) {
        const config_field *field = PyUnicode_Check(key) ?
                                        find_config_field(key) :
                                        NULL;
        int                 rc;

        if (field != NULL) {
            rc = set_config_field(config, field, value);
        } else if (PyUnicode_Check(key) &&
                   PyUnicode_CompareWithASCIIString(key, "token") == 0) {
            rc = set_token(config, value);
        } else {
            PyErr_Format(st->exceptions[EXC_UCXConfigError],
                         "there is no setting %R", key);
            rc = -1;
        }
        if (rc < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- the type ------------------------------------------------------------
 */

static int
context_open(ContextObject *self, PyObject *options, int env_first,
             PyObject *config_dict)
{
    umx_context_params params = {.field_mask = UMX_CONTEXT_FIELD_CONFIG};
    umx_config         config;
    umx_status         status;
    int                bad_option = -1;

    if (parse_config(self->st, config_dict, &config) < 0 ||
        use_options(&params, options, env_first) < 0) {
        return -1;
    }
    params.config = &config;
    status        = umx_context_create(&params, &self->umx, &bad_option);
    if (status == UMX_ERR_INVALID_PARAM && umx_config_check(&config) != NULL) {
        raise_config_error(self->st, &config);
    } else if (status != UMX_OK) {
        raise_option_error(self->st, status, &params, bad_option);
    }
    PyMem_Free((void *)params.options);
    log_deliver(self->st);
    return (status == UMX_OK) ? 0 : -1;
}

static PyObject *
context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"options", "env_first", "config", "features",
                               NULL};

    mod_state     *st      = state_of_type(type);
    PyObject      *options = NULL, *config = NULL;
    int            env_first = 0;
    unsigned       features  = UINT_MAX;
    ContextObject *self;

    if (st == NULL || !PyArg_ParseTupleAndKeywords(
                          args, kwargs, "|O$pOI:Context", keywords, &options,
                          &env_first, &config, &features)) {
        return NULL;
    }
    self = (ContextObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st       = st;
    self->features = features;
    st->num_contexts++;
    if (context_open(self, options, env_first, config) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
context_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void
context_dealloc(PyObject *op)
{
    ContextObject *self = (ContextObject *)op;
    PyTypeObject  *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->umx != NULL) {
        umx_context_release(self->umx);
    }
    self->st->num_contexts--;
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(info_doc,
             "info($self, /)\n--\n\nUCX's own description of the context.");

static PyObject *
context_info(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ContextObject *self = (ContextObject *)op;
    char          *chars;

    return errors_or_text(self->st, umx_context_info(self->umx, &chars), &chars,
                          "info");
}

static PyObject *
get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(umx_context_handle(((ContextObject *)op)->umx));
}

static int
add_config_item(PyObject *dict, const umx_config *config,
                const config_field *field)
{
    PyObject *value = PyLong_FromUnsignedLongLong(config_number(config, field));
    int       rc;

    if (value == NULL) {
        return -1;
    }
    rc = PyDict_SetItemString(dict, field->name, value);
    Py_DECREF(value);
    return rc;
}

/* All but the token, which is nobody's to read. */
static PyObject *
get_config(PyObject *op, void *Py_UNUSED(closure))
{
    const umx_config *config = umx_context_config(((ContextObject *)op)->umx);
    PyObject         *dict   = PyDict_New();

    for (size_t i = 0; dict != NULL && i < Py_ARRAY_LENGTH(config_fields);
         i++) {
        if (add_config_item(dict, config, &config_fields[i]) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyMethodDef context_methods[] = {
    {"info", context_info, METH_NOARGS, info_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef context_getset[] = {
    {"handle", get_handle, NULL, "UCX's ucp_context_h.", NULL},
    {"config", get_config, NULL, "The limits in force, without the token.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(context_doc,
             "Context(options=None, *, env_first=False, config=None,\n"
             "        features=0xffffffff)\n--\n\n"
             "A UCX context. `options`: UCX's, without the UCX_ prefix.\n"
             "`config`: fields of umx_config by name. `features`: bits of\n"
             "what ucp._libs may do.");

static PyType_Slot context_slots[] = {
    {Py_tp_doc, (void *)context_doc},
    {Py_tp_new, context_new},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_traverse, context_traverse},
    {Py_tp_methods, context_methods},
    {Py_tp_getset, context_getset},
    {0, NULL},
};

PyType_Spec context_spec = {
    .name      = "ucp._ext.Context",
    .basicsize = sizeof(ContextObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = context_slots,
};

/* ---- config_options() ----------------------------------------------------
 */

/* 0; -1 with an exception. */
static int
add_options(PyObject *dict, const text_pairs *pairs)
{
    const char *key = pairs->texts;

    for (size_t i = 0; i < pairs->count; i++) {
        const char *value = key + strlen(key) + 1;
        PyObject   *text  = PyUnicode_FromString(value);

        if (text == NULL || PyDict_SetItemString(dict, key, text) < 0) {
            Py_XDECREF(text);
            return -1;
        }
        Py_DECREF(text);
        key = value + strlen(value) + 1;
    }
    if (pairs->is_cut) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

PyObject *
context_config_options(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"options", "env_first", NULL};

    mod_state         *st        = PyModule_GetState(module);
    umx_context_params params    = {0};
    text_pairs         pairs     = {0};
    PyObject          *options   = NULL, *dict;
    int                env_first = 0, bad_option = -1;
    umx_status         status;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:config_options",
                                     keywords, &options, &env_first) ||
        use_options(&params, options, env_first) < 0) {
        return NULL;
    }
    dict = PyDict_New();
    if (dict != NULL) {
        status = event_list_options(&params, &pairs, &bad_option);
        if (status != UMX_OK) {
            raise_option_error(st, status, &params, bad_option);
            Py_CLEAR(dict);
        } else if (add_options(dict, &pairs) < 0) {
            Py_CLEAR(dict);
        }
        free(pairs.texts);
    }
    PyMem_Free((void *)params.options);
    return dict;
}
