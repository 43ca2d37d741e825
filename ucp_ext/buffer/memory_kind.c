/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_kind.c: the kinds of memory that Memory and BufferPool allocate, and
 * what they tell NumPy and CuPy of it. */
#include "buffer/memory_kind.h"

#include <string.h>

struct memory_kind {
    const char *name;
    umx_memtype memtype;
    bool        is_of_driver; /* NVIDIA's */
};

static const memory_kind kinds[] = {
    {"host", UMX_MEMTYPE_HOST, false},
    {"pinned", UMX_MEMTYPE_HOST, true},
    {"cuda", UMX_MEMTYPE_CUDA, true},
    {"cuda-managed", UMX_MEMTYPE_CUDA_MANAGED, true},
};

const memory_kind *
memory_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            return &kinds[i];
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "kind is 'host', 'pinned', 'cuda' or 'cuda-managed', not "
                 "'%.200s'",
                 name);
    return NULL;
}

int
memory_kind_alloc(mod_state *st, umx_context *context, const memory_kind *kind,
                  PyObject *device, size_t len, memory_access access,
                  umx_memh **memh_p)
{
    long       ordinal = UMX_DEVICE_NONE;
    umx_status status;

    if (device != Py_None) {
        ordinal = PyLong_AsLong(device);
        if (ordinal == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (ordinal < 0 || ordinal > INT_MAX || !kind->is_of_driver) {
            PyErr_Format(PyExc_ValueError, "there is no device %ld for '%s'",
                         ordinal, kind->name);
            return -1;
        }
    }
    if (access == MEMORY_READONLY && kind != &kinds[0]) {
        PyErr_Format(
            PyExc_ValueError,
            "memory of kind '%s' cannot be read-only, but that of kind "
            "'host'",
            kind->name);
        return -1;
    }
    if (kind->is_of_driver) {
        status = umx_memh_alloc_cuda(context, kind->memtype, ordinal, len,
                                     memh_p);
    } else if (access == MEMORY_PRIVATE) {
        status = umx_memh_alloc_private(context, len, memh_p);
    } else if (access == MEMORY_READONLY) {
        status = umx_memh_alloc_readonly(context, len, memh_p);
    } else {
        status = umx_memh_alloc(context, len, memh_p);
    }
    if (status == UMX_OK) {
        return 0;
    }
    if (status == UMX_ERR_UNSUPPORTED) {
        PyErr_Format(PyExc_ValueError,
                     "memory of kind '%s' needs a CUDA driver and a device",
                     kind->name);
    } else if (status == UMX_ERR_OUT_OF_RANGE) {
        PyErr_Format(PyExc_ValueError, "there is no device %ld", ordinal);
    } else {
        (void)errors_raise(st, status, "Memory", NULL);
    }
    return -1;
}

/* ---- what arrays see -----------------------------------------------------
 */

static PyObject *
no_attribute(const char *name, const char *why)
{
    PyErr_Format(PyExc_AttributeError, "%s: it is %s memory", name, why);
    return NULL;
}

static PyObject *
describe(const void *data, size_t len, bool is_readonly)
{
    return Py_BuildValue("{s:i,s:(n),s:s,s:(NO),s:O}", "version", 3, "shape",
                         (Py_ssize_t)len, "typestr", "|u1", "data",
                         PyLong_FromVoidPtr((void *)data),
                         is_readonly ? Py_True : Py_False, "strides", Py_None);
}

PyObject *
memory_array_interface(umx_memtype memtype, const void *data, size_t len,
                       bool is_readonly)
{
    return (memtype == UMX_MEMTYPE_CUDA) ?
               no_attribute("__array_interface__", "device") :
               describe(data, len, is_readonly);
}

PyObject *
memory_cuda_interface(umx_memtype memtype, const void *data, size_t len,
                      bool is_readonly)
{
    return (memtype <= UMX_MEMTYPE_HOST) ?
               no_attribute("__cuda_array_interface__", "host") :
               describe(data, len, is_readonly);
}

int
memory_check_host(umx_memtype memtype)
{
    if (LIKELY(memtype != UMX_MEMTYPE_CUDA)) {
        return 0;
    }
    PyErr_SetString(PyExc_BufferError, "device memory has no buffer, but "
                                       "__cuda_array_interface__");
    return -1;
}
