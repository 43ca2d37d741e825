/* SPDX-License-Identifier: BSD-3-Clause */
#include "state.h"

#include <string.h>

static int
find_keyword(PyObject *name, const char *const *keywords, int n)
{
    for (int i = 0; i < n; i++) {
        if (PyUnicode_CompareWithASCIIString(name, keywords[i]) == 0) {
            return i;
        }
    }
    return -1;
}

int
args_parse(const char *name, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames, const char *const *keywords, int n,
           int num_positional, int required, PyObject **values)
{
    Py_ssize_t nkw = (kwnames == NULL) ? 0 : PyTuple_GET_SIZE(kwnames);

    if (nargs > num_positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes %d positional argument%s but %zd were given",
                     name, num_positional, num_positional == 1 ? "" : "s",
                     nargs);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        values[i] = (i < nargs) ? args[i] : NULL;
    }
    for (Py_ssize_t i = 0; i < nkw; i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        int       at  = find_keyword(key, keywords, n);

        if (at < 0) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got an unexpected keyword argument '%U'", name,
                         key);
            return -1;
        }
        if (values[at] != NULL) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got multiple values for argument '%U'", name,
                         key);
            return -1;
        }
        values[at] = args[nargs + i];
    }
    for (int i = 0; i < required; i++) {
        if (values[i] == NULL) {
            PyErr_Format(PyExc_TypeError,
                         "%s() missing required argument '%s' (pos %d)", name,
                         keywords[i], i + 1);
            return -1;
        }
    }
    return 0;
}

/* ---- sequences -----------------------------------------------------------
 */

/* Making the tuple may collect garbage, and that may change the list. */
static PyObject *
copy_list(PyObject *list)
{
    for (;;) {
        Py_ssize_t count = PyList_GET_SIZE(list);
        PyObject  *items = PyTuple_New(count);

        if (items == NULL) {
            return NULL;
        }
        if (PyList_GET_SIZE(list) == count) {
            for (Py_ssize_t i = 0; i < count; i++) {
                PyTuple_SET_ITEM(items, i, Py_NewRef(PyList_GET_ITEM(list, i)));
            }
            return items;
        }
        Py_DECREF(items);
    }
}

PyObject *
args_items(PyObject *sequence, const char *expected)
{
    PyObject *iterator, *items;

    if (PyTuple_CheckExact(sequence)) {
        return Py_NewRef(sequence);
    }
    if (PyList_CheckExact(sequence)) {
        return copy_list(sequence);
    }
    iterator = PyObject_GetIter(sequence);
    if (iterator == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_SetString(PyExc_TypeError, expected);
        }
        return NULL;
    }
    items = PySequence_Tuple(iterator);
    Py_DECREF(iterator);
    return items;
}

/* ---- tags ----------------------------------------------------------------
 */

static int
append_bytes(PyObject *bytes, char kind, const char *data, Py_ssize_t size,
             uint64_t len)
{
    Py_ssize_t at = PyByteArray_GET_SIZE(bytes);
    char      *pos;

    if (PyByteArray_Resize(bytes, at + 1 + (Py_ssize_t)sizeof(len) + size) <
        0) {
        return -1;
    }
    pos  = PyByteArray_AS_STRING(bytes) + at;
    *pos = kind;
    memcpy(pos + 1, &len, sizeof(len));
    memcpy(pos + 1 + sizeof(len), data, (size_t)size);
    return 0;
}

static int append_tag(PyObject *tag, PyObject *bytes);

static int
append_tuple(PyObject *tag, PyObject *bytes)
{
    Py_ssize_t n  = PyTuple_GET_SIZE(tag);
    int        rc = append_bytes(bytes, 't', "", 0, (uint64_t)n);

    for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
        rc = append_tag(PyTuple_GET_ITEM(tag, i), bytes);
    }
    return rc;
}

static int
append_str(PyObject *text, char kind, PyObject *bytes)
{
    Py_ssize_t  size;
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);

    return (data == NULL) ?
               -1 :
               append_bytes(bytes, kind, data, size, (uint64_t)size);
}

/* Append bytes that differ for different tags: a letter for the type, a
 * length, the contents. */
static int
append_tag(PyObject *tag, PyObject *bytes)
{
    int rc = -1;

    if (PyUnicode_Check(tag)) {
        return append_str(tag, 's', bytes);
    }
    if (PyBytes_Check(tag)) {
        Py_ssize_t size = PyBytes_GET_SIZE(tag);

        return append_bytes(bytes, 'b', PyBytes_AS_STRING(tag), size,
                            (uint64_t)size);
    }
    if (PyLong_Check(tag)) {
        PyObject *digits = PyNumber_ToBase(tag, 10);

        if (digits != NULL) {
            rc = append_str(digits, 'i', bytes);
            Py_DECREF(digits);
        }
        return rc;
    }
    if (PyTuple_Check(tag)) {
        if (Py_EnterRecursiveCall(" while hashing a tag") == 0) {
            rc = append_tuple(tag, bytes);
            Py_LeaveRecursiveCall();
        }
        return rc;
    }
    /* Early programs of ucx-py gave an array with the number of bytes. */
    PyErr_Format(PyExc_TypeError,
                 "a tag is None, int, str, bytes or tuple, not %.200s%s",
                 Py_TYPE(tag)->tp_name,
                 PyObject_CheckBuffer(tag) ?
                     "; send(buffer) and recv(buffer) take no number of bytes, "
                     "the length is the buffer's" :
                     "");
    return -1;
}

static int
hash_tag(PyObject *tag, uint64_t *hash_p)
{
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, 0);
    int       rc;

    if (bytes == NULL) {
        return -1;
    }
    rc = append_tag(tag, bytes);
    if (rc == 0) {
        *hash_p = umx_tag_hash(PyByteArray_AS_STRING(bytes),
                               (size_t)PyByteArray_GET_SIZE(bytes));
    }
    Py_DECREF(bytes);
    return rc;
}

/* 64 bits; negative numbers in two's complement. */
static int
int_tag(PyObject *tag, uint64_t *value_p)
{
    *value_p = PyLong_AsUnsignedLongLong(tag);
    if (*value_p != (uint64_t)-1 || !PyErr_Occurred()) {
        return 0;
    }
    PyErr_Clear();
    *value_p = (uint64_t)PyLong_AsLongLong(tag);
    if (*value_p != (uint64_t)-1 || !PyErr_Occurred()) {
        return 0;
    }
    PyErr_Format(PyExc_OverflowError, "tag %R does not fit in 64 bits", tag);
    return -1;
}

int
args_tag(mod_state *st, PyObject *tag, umx_match *match)
{
    match->mask  = UINT64_MAX;
    match->tag   = 0;
    match->flags = 0;
    if (tag == NULL || tag == Py_None) {
        match->flags = UMX_MATCH_UNTAGGED;
        return 0;
    }
    if (tag == st->any) {
        match->flags = UMX_MATCH_ANY;
        return 0;
    }
    if (PyLong_Check(tag)) {
        return int_tag(tag, &match->tag);
    }
    return hash_tag(tag, &match->tag);
}

int
args_raw_tag(PyObject *tag, const char *name, uint64_t *value_p)
{
    PyObject *number;

    if (tag == NULL || !PyIndex_Check(tag)) {
        PyErr_Format(PyExc_TypeError,
                     "%s must be an int of 64 bits, not %.200s", name,
                     tag == NULL ? "None" : Py_TYPE(tag)->tp_name);
        return -1;
    }
    number = PyNumber_Index(tag);
    if (number == NULL) {
        return -1;
    }
    *value_p = PyLong_AsUnsignedLongLong(number);
    if (*value_p == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_OverflowError, "%s must be 0 to 2**64-1, not %R",
                     name, number);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    return 0;
}

int
args_timeout(PyObject *seconds, uint64_t fallback_ns, uint64_t *ns_p)
{
    double value;

    if (seconds == NULL || seconds == Py_None) {
        *ns_p = fallback_ns;
        return 0;
    }
    value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (!(value >= 0)) {
        PyErr_Format(PyExc_ValueError,
                     "a timeout is a number of seconds >= 0, not %R", seconds);
        return -1;
    }
    *ns_p = (value >= 1e9) ? UMX_TIMEOUT_INFINITE : (uint64_t)(value * 1e9);
    return 0;
}
