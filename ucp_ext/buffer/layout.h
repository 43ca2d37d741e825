/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.h: what objects say of their memory; inside this room, and for
 * Array. */
#ifndef UCP_EXT_BUFFER_LAYOUT_H
#define UCP_EXT_BUFFER_LAYOUT_H

#include "buffer/buffer.h"

/* The layout of an object's memory. */
typedef struct buffer_layout {
    PyObject  *obj; /* whose memory it is; borrowed, or NULL */
    Py_ssize_t itemsize;
    int        ndim;
    bool       is_readonly;
    bool       is_c_contiguous;
    bool       is_f_contiguous;
    uintptr_t  stream; /* of CUDA, whose work comes first; 0: none */
    Py_ssize_t nitems; /* of what is described by its object */
    Py_ssize_t shape[PyBUF_MAX_NDIM];
    Py_ssize_t strides[PyBUF_MAX_NDIM];
} buffer_layout;

/* By the buffer protocol. */
int buffer_acquire_exporter(mod_state *st, PyObject *obj, bool is_writable,
                            buffer_hold *hold);

/* buffer_acquire() for reading that takes any strides. */
int buffer_describe(mod_state *st, PyObject *obj, buffer_hold *hold,
                    buffer_layout *layout);

/* The strides of C order; where there is no item they mean nothing. */
void buffer_fill_strides(buffer_layout *layout);
void buffer_check_order(buffer_layout *layout);

/* What `obj` says of its memory (buffer/interface.c, buffer/dlpack.c). 1; 0: it
 * does not say; -1 with an exception. Memory with gaps is held, too. */
int interface_acquire(mod_state *st, PyObject *obj, bool is_writable,
                      buffer_hold *hold, buffer_layout *layout);
int dlpack_acquire(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold, buffer_layout *layout);

enum {
    DEVICE_LEGACY_STREAM = 1
};

/* What `obj`, which says that it is in device memory, has given: is it there?
 * Then wait for `stream`; 0: none. Sets the memory's type. */
int device_settle(mod_state *st, PyObject *obj, uintptr_t stream,
                  buffer_hold *hold);

/* A number, or an object of CUDA Python, CuPy or torch. */
int device_parse_stream(mod_state *st, PyObject *obj, uintptr_t *stream_p);

/* Have the items of held memory, which `layout` describes, in C order: a
 * destination gets a layout, and a source is replaced by a copy, which costs
 * less than to gather items as messages go. -1 with an exception: the hold is
 * to be released. */
int buffer_set_order(PyObject *obj, bool is_writable,
                     const buffer_layout *layout, buffer_hold *hold);

/* Sizes as a tuple. */
PyObject *buffer_sizes(int ndim, const Py_ssize_t *sizes);

int buffer_refuse_readonly(PyObject *obj);

/* `hold` has memory that `base` exports: a Memory, a PoolBuffer, or a
 * memoryview of these? Then it names the registration, too. */
void registered_find(mod_state *st, PyObject *base, buffer_hold *hold);

#endif
