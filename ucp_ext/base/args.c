/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c: the arguments of functions. */
#include "base/args.h"

#include "base/state.h"

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

int
args_check_made(PyObject *args, PyTypeObject *type, const char *how)
{
    PyObject *first;

    if (PyTuple_GET_SIZE(args) == 0) {
        PyErr_SetString(PyExc_TypeError, how);
        return -1;
    }
    first = PyTuple_GET_ITEM(args, 0);
    if (!PyObject_TypeCheck(first, type)) {
        PyErr_Format(PyExc_TypeError, "%s, not of %.200s", how,
                     Py_TYPE(first)->tp_name);
        return -1;
    }
    return 0;
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

/* Arrays of one element have __index__, and may change. */
static bool
is_number(PyObject *tag)
{
    return PyIndex_Check(tag) && Py_TYPE(tag)->tp_hash != NULL &&
           Py_TYPE(tag)->tp_hash != PyObject_HashNotImplemented;
}

/* A number that is no int, as NumPy's, is the tag that its int is. */
static int
append_int(PyObject *number, PyObject *bytes)
{
    PyObject *digits = PyNumber_ToBase(number, 16);
    int       rc     = -1;

    if (digits != NULL) {
        rc = append_str(digits, 'i', bytes);
        Py_DECREF(digits);
    }
    return rc;
}

/* Something with a hash, which has to be the same in both processes. */
static int
append_hashable(PyObject *tag, PyObject *bytes)
{
    Py_hash_t value = PyObject_Hash(tag);

    if (value != -1) {
        return append_bytes(bytes, 'h', (const char *)&value, sizeof(value),
                            sizeof(value));
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        /* Early programs of ucx-py gave an array with the number of bytes. */
        PyErr_Format(PyExc_TypeError, "a tag is None or hashable, not %.200s%s",
                     Py_TYPE(tag)->tp_name,
                     PyObject_CheckBuffer(tag) ?
                         "; send(buffer) and recv(buffer) take no number of "
                         "bytes, the length is the buffer's" :
                         "");
    }
    return -1;
}

/* Append bytes that differ for different tags: a letter for the type, a
 * length, the contents. None, which has another hash in each process before
 * Python 3.12, can only be in a tuple. */
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
    if (is_number(tag)) {
        return append_int(tag, bytes);
    }
    if (PyTuple_Check(tag)) {
        if (Py_EnterRecursiveCall(" while hashing a tag") == 0) {
            rc = append_tuple(tag, bytes);
            Py_LeaveRecursiveCall();
        }
        return rc;
    }
    if (tag == Py_None) {
        return append_bytes(bytes, 'n', "", 0, 0);
    }
    return append_hashable(tag, bytes);
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

/* 64 bits; negative numbers in two's complement. 1; 0: too many bits; -1. */
static int
read_64_bits(PyObject *number, uint64_t *value_p)
{
    int overflow;

    *value_p = PyLong_AsUnsignedLongLong(number);
    if (*value_p != (uint64_t)-1 || !PyErr_Occurred()) {
        return 1;
    }
    PyErr_Clear();
    *value_p = (uint64_t)PyLong_AsLongLongAndOverflow(number, &overflow);
    if (*value_p == (uint64_t)-1 && PyErr_Occurred()) {
        return -1;
    }
    return overflow == 0;
}

/* An int is itself if it has 64 bits, else hashed. */
static int
int_tag(PyObject *tag, uint64_t *value_p)
{
    PyObject *number = PyNumber_Index(tag);
    int       rc     = -1;

    if (number != NULL) {
        rc = read_64_bits(number, value_p);
    }
    if (rc == 0) {
        rc = hash_tag(number, value_p);
    }
    Py_XDECREF(number);
    return (rc < 0) ? -1 : 0;
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
    return is_number(tag) ? int_tag(tag, &match->tag) :
                            hash_tag(tag, &match->tag);
}

int
args_mask(PyObject *mask, uint64_t *value_p)
{
    PyObject *number;
    int       rc;

    if (!PyIndex_Check(mask)) {
        PyErr_Format(PyExc_TypeError,
                     "mask must be an int of 64 bits, not "
                     "%.200s",
                     Py_TYPE(mask)->tp_name);
        return -1;
    }
    number = PyNumber_Index(mask);
    if (number == NULL) {
        return -1;
    }
    rc = read_64_bits(number, value_p);
    if (rc == 0) {
        PyErr_Format(PyExc_OverflowError, "mask %R does not fit in 64 bits",
                     number);
    }
    Py_DECREF(number);
    return (rc > 0) ? 0 : -1;
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
args_bits(PyObject *bits, unsigned *size_p)
{
    long number = (bits == NULL) ? 64 : PyLong_AsLong(bits);

    if (number != 32 && number != 64) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "bits is 32 or 64, not %ld", number);
        }
        return -1;
    }
    *size_p = (unsigned)number / 8;
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
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear(); /* attributes are not looked up with an error set */
            PyErr_Format(PyExc_TypeError,
                         "a timeout is a number of seconds, not %R%s", seconds,
                         PyObject_HasAttrString(seconds, "total_seconds") ?
                             ": give its total_seconds()" :
                             "");
        }
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

int
args_allocator(PyObject **allocator_p)
{
    PyObject *allocator = *allocator_p;

    if (allocator == Py_None || allocator == (PyObject *)&PyByteArray_Type) {
        *allocator_p = NULL;
    } else if (allocator != NULL && !PyCallable_Check(allocator)) {
        PyErr_Format(PyExc_TypeError, "allocator must be callable, not %.200s",
                     Py_TYPE(allocator)->tp_name);
        return -1;
    }
    return 0;
}

int
args_window(PyObject *window, umx_window *window_p)
{
    unsigned long long bytes;
    unsigned           messages;

    *window_p = (umx_window){0};
    if (window == NULL || window == Py_None) {
        return 0;
    }
    if (!PyArg_ParseTuple(window, "IK", &messages, &bytes)) {
        return -1;
    }
    window_p->messages = messages;
    window_p->bytes    = bytes;
    return 0;
}

/* Write "\\0" for each NUL, which ends a text in C. */
static PyObject *
without_nul(PyObject *text)
{
    PyObject *nul    = PyUnicode_FromOrdinal(0);
    PyObject *mark   = PyUnicode_FromString("\\0");
    PyObject *result = NULL;

    if (nul != NULL && mark != NULL) {
        result = PyUnicode_Replace(text, nul, mark, -1);
    }
    Py_XDECREF(nul);
    Py_XDECREF(mark);
    return result;
}

int
args_reason(PyObject *reason, PyObject **bytes_p)
{
    PyObject *text;

    *bytes_p = NULL;
    if (reason == NULL || reason == Py_None) {
        return 0;
    }
    if (!PyUnicode_Check(reason)) {
        PyErr_Format(PyExc_TypeError, "reason must be a str, not %.200s",
                     Py_TYPE(reason)->tp_name);
        return -1;
    }
    text = without_nul(reason);
    if (text == NULL) {
        return -1;
    }
    *bytes_p = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    Py_DECREF(text);
    return (*bytes_p == NULL) ? -1 : 0;
}
