/* SPDX-License-Identifier: BSD-3-Clause */
/* compat.h: what differs between CPython 3.11 and 3.15, between compilers and
 * between CPUs. Included first by every file of the binding. */
#ifndef UCP_EXT_BASE_COMPAT_H
#define UCP_EXT_BASE_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if PY_VERSION_HEX < 0x030b0000
#error "CPython 3.11 or newer is needed"
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))

#if PY_VERSION_HEX < 0x030c0000
static inline PyObject *
PyErr_GetRaisedException(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        (void)PyException_SetTraceback(value, traceback);
        Py_DECREF(traceback);
    }
    Py_DECREF(type);
    return value;
}

static inline void
PyErr_SetRaisedException(PyObject *exc)
{
    if (exc == NULL) {
        PyErr_Clear();
        return;
    }
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exc)), exc,
                  PyException_GetTraceback(exc));
}
#endif

/* 1 found, 0 absent, -1 error; `*value_p` is a new reference or NULL. */
#if PY_VERSION_HEX < 0x030d0000
static inline int
PyObject_GetOptionalAttr(PyObject *obj, PyObject *name, PyObject **value_p)
{
    return _PyObject_LookupAttr(obj, name, value_p);
}
#endif

/* Count an export of a bytearray, whose bytes stay where they are until the
 * count is back at 0, and end it: what its buffer protocol does, without a view
 * to fill in. */
#ifndef Py_GIL_DISABLED
static inline void
compat_bytearray_export(PyObject *obj)
{
    ((PyByteArrayObject *)Py_NewRef(obj))->ob_exports++;
}

static inline void
compat_bytearray_release(PyObject *obj)
{
    ((PyByteArrayObject *)obj)->ob_exports--;
    Py_DECREF(obj);
}
#else
static inline void
compat_bytearray_export(PyObject *obj)
{
    Py_buffer view;

    (void)!PyObject_GetBuffer(obj, &view, PyBUF_WRITABLE); /* never fails */
}

static inline void
compat_bytearray_release(PyObject *obj)
{
    Py_buffer view = {.obj = obj};

    PyBuffer_Release(&view);
}
#endif

/* Revive an object that a free list kept, with one reference. */
static inline void
compat_revive(PyObject *op)
{
#if defined(Py_REF_DEBUG) || defined(Py_TRACE_REFS) || defined(Py_GIL_DISABLED)
    _Py_NewReference(op);
#else
    Py_SET_REFCNT(op, 1);
#endif
}

/* What a weak reference refers to, as a new reference; NULL: it is gone. */
static inline PyObject *
compat_weakref_get(PyObject *ref)
{
    PyObject *object;

#if PY_VERSION_HEX >= 0x030d0000
    (void)!PyWeakref_GetRef(ref, &object); /* fails for other types only */
#else
    object = PyWeakref_GetObject(ref);
    object = (object != Py_None) ? Py_NewRef(object) : NULL;
#endif
    return object;
}

/* Deallocated just now: what a subclass has goes before the base has its turn.
 */
static inline bool
compat_is_dying(const void *op)
{
    return Py_REFCNT((PyObject *)(uintptr_t)op) == 0;
}

static inline bool
compat_is_finalizing(void)
{
#if PY_VERSION_HEX < 0x030d0000
    return _Py_IsFinalizing();
#else
    return Py_IsFinalizing();
#endif
}

/* A number that no other live thread of the process has. */
static inline uintptr_t
compat_thread_id(void)
{
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__)) && \
    (defined(__clang__) || __GNUC__ >= 11)
    return (uintptr_t)__builtin_thread_pointer();
#else
    return (uintptr_t)PyThread_get_thread_ident();
#endif
}

/* CLOCK_MONOTONIC, which is also the clock of asyncio's and uvloop's loops. */
static inline uint64_t
compat_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
