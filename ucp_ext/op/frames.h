/* SPDX-License-Identifier: BSD-3-Clause */
/* frames.h: messages of frames. */
#ifndef UCP_EXT_OP_FRAMES_H
#define UCP_EXT_OP_FRAMES_H

#include "request/request.h"

/* The memory of frames. */
typedef struct frames_list {
    Py_ssize_t  count;
    Py_ssize_t  num_held; /* of `holds` */
    umx_buffer *buffers;  /* behind `holds` */
    buffer_hold holds[];
} frames_list;

/* The tail of operations with frames; others' tails begin with its list. */
typedef struct TAIL frames_tail {
    frames_list *list;      /* or NULL */
    PyObject    *header;    /* bytes in front of the frames, or NULL */
    PyObject    *allocator; /* of recv_frames(), or NULL */
} frames_tail;

static inline frames_list *
frames_of(const RequestObject *req)
{
    return TAIL_OF(req, frames_tail)->list;
}

/* Functions of op_type. */
void frames_release(RequestObject *req);
int  frames_visit_list(const RequestObject *req, visitproc visit, void *arg);

/* Hold `objects`, a sequence of buffers. -1 with an exception. */
int frames_hold(RequestObject *req, PyObject *objects, bool is_writable);

/* Nothing is held yet. NULL with an exception. */
frames_list *frames_list_new(Py_ssize_t count);
void         frames_list_free(frames_list *list);

extern const op_type op_send_frames, op_recv_frames, op_recv_frames_into;

#endif
