/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.h: the memory of any object, held for an operation. */
#ifndef UCP_EXT_BUFFER_BUFFER_H
#define UCP_EXT_BUFFER_BUFFER_H

#include "state.h"

#include <umx/umx.h>

/* An object's memory, held: the export, or the object itself. */
typedef struct buffer_hold {
    umx_buffer buf;
    PyObject  *owner; /* or NULL */
    Py_buffer  view;  /* view.obj NULL: no export */
} buffer_hold;

/* -1 with an exception that names what was given. */
int buffer_acquire(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold);

/* buffer_acquire() that takes host memory with gaps, too. */
int buffer_acquire_strided(mod_state *st, PyObject *obj, bool is_writable,
                           buffer_hold *hold);

/* Hold `obj`, whose memory that is. */
static inline void
buffer_hold_object(buffer_hold *hold, PyObject *obj, void *data, size_t len,
                   umx_memtype memtype)
{
    hold->owner    = Py_NewRef(obj);
    hold->view.obj = NULL;
    hold->buf      = (umx_buffer){.data = data, .len = len, .memtype = memtype};
}

static inline void
buffer_release(buffer_hold *hold)
{
    if (hold->view.obj != NULL) {
        PyBuffer_Release(&hold->view);
    }
    if (UNLIKELY(hold->buf.layout != NULL)) {
        PyMem_Free((void *)(uintptr_t)hold->buf.layout);
        hold->buf.layout = NULL;
    }
    Py_CLEAR(hold->owner);
}

/* `stream=` of an operation; NULL, None: nothing to wait for. */
int device_wait(mod_state *st, PyObject *stream, const buffer_hold *hold);

/* Is it a Memory or PoolBuffer that the CPU cannot reach? */
bool registered_is_on_device(mod_state *st, PyObject *exporter);

#endif
