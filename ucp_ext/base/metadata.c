/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.c: dictionaries of str, int and bytes, encoded. */
#include "base/metadata.h"

/* UTF-8 of `text`; NULL with an exception. */
static const char *
text_of(PyObject *text, PyObject *key, size_t *len_p)
{
    Py_ssize_t  len;
    const char *data = PyUnicode_AsUTF8AndSize(text, &len);

    if (data == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "metadata: the %s %A is no Unicode text",
                     text == key ? "key" : "value of", key);
        return NULL;
    }
    *len_p = (size_t)len;
    return data;
}

static int
fill_number(umx_metadata_item *item, PyObject *key, PyObject *value)
{
    int       overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);

    if (overflow != 0) {
        PyErr_Format(PyExc_ValueError,
                     "metadata[%A] is an int of more than 64 bits", key);
        return -1;
    }
    item->type   = UMX_METADATA_INT;
    item->number = number;
    return 0;
}

static int
fill_item(umx_metadata_item *item, PyObject *key, PyObject *value)
{
    if (!PyUnicode_Check(key)) {
        PyErr_Format(PyExc_TypeError, "metadata: a key must be str, not %.200s",
                     Py_TYPE(key)->tp_name);
        return -1;
    }
    item->key = text_of(key, key, &item->key_len);
    if (item->key == NULL) {
        return -1;
    }
    if (PyUnicode_Check(value)) {
        item->type = UMX_METADATA_STR;
        item->data = text_of(value, key, &item->len);
        return (item->data == NULL) ? -1 : 0;
    }
    if (PyLong_Check(value)) {
        return fill_number(item, key, value);
    }
    if (PyBytes_Check(value)) {
        item->type = UMX_METADATA_BYTES;
        item->data = PyBytes_AS_STRING(value);
        item->len  = (size_t)PyBytes_GET_SIZE(value);
        return 0;
    }
    PyErr_Format(PyExc_TypeError,
                 "metadata[%A] must be str, int or bytes, not %.200s", key,
                 Py_TYPE(value)->tp_name);
    return -1;
}

static void
refuse(umx_status status, const umx_metadata_item *item, PyObject *key)
{
    if (status == UMX_ERR_NO_MEMORY) {
        PyErr_NoMemory();
    } else if (item->key_len == 0) {
        PyErr_SetString(PyExc_ValueError, "metadata: a key is empty");
    } else if (item->key_len > UMX_METADATA_KEY_MAX) {
        PyErr_Format(PyExc_ValueError,
                     "metadata: the key %A has more than %d bytes", key,
                     UMX_METADATA_KEY_MAX);
    } else {
        PyErr_Format(PyExc_ValueError,
                     "metadata[%A] is too much: at most %d items and %d bytes",
                     key, UMX_METADATA_ITEMS_MAX, UMX_METADATA_MAX);
    }
}

int
metadata_encode(PyObject *dict, umx_metadata_builder *builder)
{
    PyObject  *key, *value;
    Py_ssize_t pos = 0;

    if (!PyDict_Check(dict)) {
        PyErr_Format(PyExc_TypeError, "metadata must be a dict, not %.200s",
                     Py_TYPE(dict)->tp_name);
        return -1;
    }
    while (PyDict_Next(dict, &pos, &key, &value)) {
        umx_metadata_item item = {0};
        umx_status        status;

        if (fill_item(&item, key, value) < 0) {
            return -1;
        }
        status = umx_metadata_add(builder, &item);
        if (status != UMX_OK) {
            refuse(status, &item, key);
            return -1;
        }
    }
    return 0;
}

static PyObject *
value_of(const umx_metadata_item *item)
{
    switch (item->type) {
    case UMX_METADATA_STR:
        return PyUnicode_DecodeUTF8(item->data, (Py_ssize_t)item->len, NULL);
    case UMX_METADATA_INT:
        return PyLong_FromLongLong(item->number);
    default:
        return PyBytes_FromStringAndSize(item->data, (Py_ssize_t)item->len);
    }
}

static int
add_item(PyObject *dict, const umx_metadata_item *item)
{
    PyObject *key   = PyUnicode_DecodeUTF8(item->key, (Py_ssize_t)item->key_len,
                                           NULL);
    PyObject *value = (key != NULL) ? value_of(item) : NULL;
    int       rc    = (value != NULL) ? PyDict_SetItem(dict, key, value) : -1;

    Py_XDECREF(key);
    Py_XDECREF(value);
    return rc;
}

PyObject *
metadata_decode(const umx_metadata *metadata)
{
    PyObject         *dict = PyDict_New();
    umx_metadata_item item;
    size_t            pos = 0;

    while (dict != NULL && umx_metadata_next(metadata, &pos, &item)) {
        if (add_item(dict, &item) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}
