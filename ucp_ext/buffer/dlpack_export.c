/* SPDX-License-Identifier: BSD-3-Clause */
/* dlpack_export.c: a Memory as a DLPack tensor, for NumPy, torch, CuPy, JAX.
 * The tensor is an export of the memory like a view of its buffer. */
#include "buffer/dlpack_export.h"

#include "buffer/dlpack.h"
#include "buffer/memh.h"

/* What a capsule leads to: one of the two, and the shape it points to. */
typedef struct exported {
    union {
        dlpack_managed   managed;
        dlpack_versioned versioned;
    } u;
    int64_t   shape;
    PyObject *memory;
} exported;

/* ---- life ----------------------------------------------------------------
 */

static void
give_back(exported *out)
{
    PyGILState_STATE gil = PyGILState_Ensure();

    memory_end_export(out->memory);
    Py_DECREF(out->memory);
    PyMem_Free(out);
    PyGILState_Release(gil);
}

static void
delete_managed(dlpack_managed *managed)
{
    give_back(managed->context);
}

static void
delete_versioned(dlpack_versioned *versioned)
{
    give_back(versioned->context);
}

/* Consumers rename a capsule that they take the tensor of. */
static void
free_capsule(PyObject *capsule)
{
    dlpack_managed   *managed;
    dlpack_versioned *versioned;

    if (PyCapsule_IsValid(capsule, "dltensor")) {
        managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        versioned->deleter(versioned);
    }
}

/* ---- the tensor ----------------------------------------------------------
 */

static int
find_device(const umx_buffer *buf, int32_t *type_p, int32_t *id_p)
{
    umx_memory_info info;

    *id_p = 0;
    if (buf->memtype == UMX_MEMTYPE_HOST) {
        *type_p = DLPACK_CPU;
        return 0;
    }
    *type_p = (buf->memtype == UMX_MEMTYPE_CUDA) ? DLPACK_CUDA :
                                                   DLPACK_CUDA_MANAGED;
    if (buf->len != 0) {
        if (umx_memory_query(buf->data, buf->len, &info) != UMX_OK) {
            PyErr_SetString(PyExc_BufferError, "CUDA does not know the memory");
            return -1;
        }
        *id_p = info.device;
    }
    return 0;
}

static int
fill_tensor(const umx_buffer *buf, exported *out, dlpack_tensor *tensor)
{
    out->shape = (int64_t)buf->len;
    *tensor    = (dlpack_tensor){.data  = buf->data,
                                 .ndim  = 1,
                                 .code  = DLPACK_UINT,
                                 .bits  = 8,
                                 .lanes = 1,
                                 .shape = &out->shape};
    return find_device(buf, &tensor->device_type, &tensor->device_id);
}

static PyObject *
make_capsule(PyObject *memory, const umx_buffer *buf, bool is_versioned,
             bool is_readonly)
{
    exported *out = PyMem_Calloc(1, sizeof(*out));
    PyObject *capsule;

    if (out == NULL) {
        return PyErr_NoMemory();
    }
    if (fill_tensor(buf, out,
                    is_versioned ? &out->u.versioned.tensor :
                                   &out->u.managed.tensor) < 0) {
        PyMem_Free(out);
        return NULL;
    }
    out->memory = Py_NewRef(memory);
    memory_begin_export(memory); /* before garbage may be collected */
    if (is_versioned) {
        out->u.versioned.major   = DLPACK_MAJOR;
        out->u.versioned.context = out;
        out->u.versioned.deleter = delete_versioned;
        out->u.versioned.flags   = is_readonly ? DLPACK_READ_ONLY : 0;
    } else {
        out->u.managed.context = out;
        out->u.managed.deleter = delete_managed;
    }
    capsule = PyCapsule_New(&out->u,
                            is_versioned ? "dltensor_versioned" : "dltensor",
                            free_capsule);
    if (capsule == NULL) {
        give_back(out);
    }
    return capsule;
}

/* ---- methods -------------------------------------------------------------
 */

const char memory_dlpack_doc[] =
    "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None,\n"
    "           copy=None)\n--\n\n"
    "A capsule of the bytes, as a tensor of one dimension; an export, as a\n"
    "view is. Nothing is queued that writes them: any stream may read.";

const char memory_dlpack_device_doc[] = "__dlpack_device__($self, /)\n--\n\n"
                                        "(type, number), as DLPack has them.";

/* (major, minor) or None. 1: at least 1.0. */
static int
takes_versions(PyObject *max_version)
{
    long major;

    if (max_version == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(max_version) || PyTuple_GET_SIZE(max_version) != 2) {
        PyErr_Format(PyExc_TypeError, "max_version must be two numbers, not %R",
                     max_version);
        return -1;
    }
    major = PyLong_AsLong(PyTuple_GET_ITEM(max_version, 0));
    return (major == -1 && PyErr_Occurred()) ? -1 : (major >= DLPACK_MAJOR);
}

/* Is it where the consumer wants it, and need it not be copied? */
static int
check_wishes(PyObject *memory, PyObject *device, PyObject *copy)
{
    PyObject *own;
    int       is_own;

    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "copy=True: there is no copy");
        return -1;
    }
    if (device == Py_None) {
        return 0;
    }
    own = memory_dlpack_device(memory, NULL);
    if (own == NULL) {
        return -1;
    }
    is_own = PyObject_RichCompareBool(own, device, Py_EQ);
    if (is_own == 0) {
        PyErr_Format(PyExc_BufferError, "it is on device %R, not on %R", own,
                     device);
    }
    Py_DECREF(own);
    return (is_own > 0) ? 0 : -1;
}

PyObject *
memory_dlpack(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"stream", "max_version", "dl_device", "copy",
                               NULL};

    MemoryObject *self   = (MemoryObject *)op;
    PyObject     *stream = Py_None, *version = Py_None;
    PyObject     *device = Py_None, *copy = Py_None;
    int           is_versioned;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__",
                                     keywords, &stream, &version, &device,
                                     &copy)) {
        return NULL;
    }
    /* Each of these may run code that closes the memory. */
    is_versioned = takes_versions(version);
    if (is_versioned < 0 || check_wishes(op, device, copy) < 0 ||
        memory_check_open(op) < 0) {
        return NULL;
    }
    if (self->is_readonly && !is_versioned) {
        PyErr_SetString(PyExc_BufferError, "read-only memory needs DLPack 1.0");
        return NULL;
    }
    return make_capsule(op, umx_memh_buffer(self->umx), is_versioned != 0,
                        self->is_readonly);
}

PyObject *
memory_dlpack_device(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MemoryObject *self = (MemoryObject *)op;
    int32_t       type, id;

    if (memory_check_open(op) < 0 ||
        find_device(umx_memh_buffer(self->umx), &type, &id) < 0) {
        return NULL;
    }
    return Py_BuildValue("ii", (int)type, (int)id);
}
