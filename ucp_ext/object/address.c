/* SPDX-License-Identifier: BSD-3-Clause */
/* address.c: the address of a worker. */
#include "object/address.h"

#include "buffer/buffer.h"

PyObject *
address_new(mod_state *st, const void *data, size_t len)
{
    AddressObject *self = (AddressObject *)st->address_type->tp_alloc(
        st->address_type, 0);

    if (self == NULL) {
        return NULL;
    }
    self->bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)len);
    if (self->bytes == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *
refuse(const void *data, size_t len, const char *why)
{
    PyObject *start = PyBytes_FromStringAndSize(
        data, (Py_ssize_t)(len < 16 ? len : 16));

    if (start != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "not a worker address of ucp: %s (%zu bytes, %R%s)", why,
                     len, start, len > 16 ? "..." : "");
        Py_DECREF(start);
    }
    return NULL;
}

PyObject *
address_from_object(mod_state *st, PyObject *obj)
{
    PyObject   *address;
    buffer_hold hold = {0};
    const char *why  = NULL;
    size_t      len;

    if (Py_IS_TYPE(obj, st->address_type)) {
        return Py_NewRef(obj);
    }
    if (buffer_acquire_run(st, obj, false, &hold) < 0) {
        return NULL;
    }
    if (hold.buf.memtype == UMX_MEMTYPE_CUDA) {
        PyErr_SetString(PyExc_TypeError,
                        "a worker address must be in host memory");
        address = NULL;
    } else if (umx_address_check(hold.buf.data, hold.buf.len, &len, &why) ==
               UMX_OK) {
        address = address_new(st, hold.buf.data, len);
    } else {
        address = refuse(hold.buf.data, hold.buf.len, why);
    }
    buffer_release(&hold);
    return address;
}
