/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.h: the memory of any object, held for an operation. */
#ifndef UCP_EXT_BUFFER_BUFFER_H
#define UCP_EXT_BUFFER_BUFFER_H

#include "base/block.h"

#include <umx/umx.h>

/* An export of the buffer protocol, in a block. */
typedef struct buffer_view {
    Py_buffer  py;
    mod_state *st;
} buffer_view;
_Static_assert(sizeof(buffer_view) <= BLOCK_SIZE, "buffer_view");

/* In place of the export of a bytearray, which only counts its exports. */
#define BYTEARRAY_VIEW ((buffer_view *)(uintptr_t)1)

/* An object's memory, held: by an export, or by the object itself. */
typedef struct buffer_hold {
    umx_buffer buf;
    /* The object, whose reference `view` has if there is one; NULL: nothing is
     * held. */
    PyObject    *owner;
    buffer_view *view; /* or NULL */
} buffer_hold;

typedef int buffer_acquire_fn(mod_state *st, PyObject *obj, bool is_writable,
                              buffer_hold *hold);

/* -1 with an exception that names what was given. The bytes are those of the
 * items in C order: of memory without gaps in another order a source is copied,
 * and a destination has a layout, but for that of a device, of an Array and of
 * a PickleBuffer, whose bytes are in the order of memory. */
int buffer_acquire(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold);

/* Find the memory of an object that is plain: bytes, a bytearray, or an array
 * of NumPy in C order that owns its memory. Nothing is held: the memory is good
 * until something of the program runs, or buffer_hold_plain() has held it. */
bool buffer_find_plain(const mod_state *st, PyObject *obj, umx_buffer *buf);
void buffer_hold_plain(PyObject *obj, buffer_hold *hold);

/* A stream of a device, whose work memory waits for; `handle` 0: none. */
typedef struct buffer_stream {
    uintptr_t handle;
    int       device;
} buffer_stream;

/* Acquire a buffer by `acquire`, and do not wait for the stream that the object
 * names: `after` gets it if its work is not done yet. The object may run code
 * of the program's, and so other calls of this one, in this thread or in
 * others: then it is waited for. */
static inline int
buffer_acquire_late(mod_state *st, buffer_acquire_fn *acquire, PyObject *obj,
                    bool is_writable, buffer_hold *hold, buffer_stream *after)
{
    int rc;

    after->handle = 0;
    st->late      = hold;
    st->after     = after;
    rc            = acquire(st, obj, is_writable, hold);
    st->late      = NULL;
    return rc;
}

/* buffer_acquire() for an operation that takes no layout: a destination that
 * would have one is refused. */
int buffer_acquire_run(mod_state *st, PyObject *obj, bool is_writable,
                       buffer_hold *hold);

/* buffer_acquire() of bytes in the order of memory. */
int buffer_acquire_raw(mod_state *st, PyObject *obj, bool is_writable,
                       buffer_hold *hold);

/* buffer_acquire() that takes host memory with gaps, too. */
int buffer_acquire_strided(mod_state *st, PyObject *obj, bool is_writable,
                           buffer_hold *hold);

/* Hold `obj`, whose memory that is. */
static inline void
buffer_hold_object(buffer_hold *hold, PyObject *obj, void *data, size_t len,
                   umx_memtype memtype)
{
    hold->owner = Py_NewRef(obj);
    hold->view  = NULL;
    hold->buf   = (umx_buffer){.data = data, .len = len, .memtype = memtype};
}

/* Is it a NumPy array of ml_dtypes' bfloat16, which has no buffer protocol? */
bool buffer_is_bfloat16(mod_state *st, PyObject *obj);

/* buffer_acquire_strided() that looks for memory without gaps first. */
int buffer_acquire_any(mod_state *st, PyObject *obj, bool is_writable,
                       buffer_hold *hold);

/* Give held memory without gaps a layout, so that operations copy the memory.
 * -1 with an exception. */
int buffer_set_one_run(buffer_hold *hold);

/* End an export: code of the exporter may run in this. */
static inline void
buffer_release_view(buffer_view *view, PyObject *owner)
{
    if (LIKELY(view == BYTEARRAY_VIEW)) {
        compat_bytearray_release(owner);
    } else {
        PyBuffer_Release(&view->py);
        block_put(view->st, view);
    }
}

/* Release what is held; nothing if that is done. */
static inline void
buffer_release(buffer_hold *hold)
{
    PyObject *owner = hold->owner;

    if (owner == NULL) {
        return;
    }
    hold->owner = NULL;
    if (UNLIKELY(hold->buf.layout != NULL)) {
        PyMem_Free((void *)(uintptr_t)hold->buf.layout);
        hold->buf.layout = NULL;
    }
    if (hold->view != NULL) {
        buffer_release_view(hold->view, owner);
    } else {
        Py_DECREF(owner);
    }
}

/* The object that a hold has a reference to, or NULL. */
static inline PyObject *
buffer_object(const buffer_hold *hold)
{
    return (hold->owner == NULL || hold->view == NULL ||
            hold->view == BYTEARRAY_VIEW) ?
               hold->owner :
               hold->view->py.obj;
}

/* Visit the object of a hold: for tp_traverse. */
static inline int
buffer_visit(const buffer_hold *hold, visitproc visit, void *arg)
{
    Py_VISIT(buffer_object(hold));
    return 0;
}

/* Can the hold be part of a cycle of references? */
static inline bool
buffer_is_in_gc(const buffer_hold *hold)
{
    const PyObject *obj;

    if (LIKELY(hold->view == BYTEARRAY_VIEW)) {
        return false;
    }
    obj = buffer_object(hold);
    return obj != NULL && PyType_IS_GC(Py_TYPE(obj));
}

/* Is the buffer as long as a message of `len` bytes? -1 with an exception. */
int buffer_check_room(const buffer_hold *hold, size_t len);

/* `stream=` of an operation; NULL, None: nothing to wait for. `after`: as
 * buffer_acquire_late() has set it, or NULL: then this waits. */
int device_wait(mod_state *st, PyObject *stream, const buffer_hold *hold,
                buffer_stream *after);

/* Is it in memory of a device, although it has the buffer protocol? A Memory or
 * PoolBuffer that the CPU cannot reach, or an array that has
 * __cuda_array_interface__. */
bool exporter_is_of_device(mod_state *st, PyObject *exporter);

#endif
