/* SPDX-License-Identifier: BSD-3-Clause */
/* frames.h: messages of frames. */
#ifndef UCP_EXT_OP_FRAMES_H
#define UCP_EXT_OP_FRAMES_H

#include "buffer/buffer.h"
#include "state.h"

/* The memory of frames. */
typedef struct frames_list {
    Py_ssize_t  count;
    Py_ssize_t  num_held; /* of `holds` */
    umx_buffer *buffers;  /* behind `holds` */
    buffer_hold holds[];
} frames_list;

void frames_release(RequestObject *req);

/* Hold `objects`, a sequence of buffers. -1 with an exception. */
int frames_hold(RequestObject *req, PyObject *objects, bool is_writable);

/* Nothing is held yet. NULL with an exception. */
frames_list *frames_list_new(Py_ssize_t count);
void         frames_list_free(frames_list *list);

umx_status frames_post_send(RequestObject *req, const umx_op_params *params);

/* A message for RECV_FRAMES: true if it is complete, or the request settled;
 * else its bytes are fetched. As am_result() and am_fetch(). */
bool      frames_start(RequestObject *req);
PyObject *frames_result(RequestObject *req);

/* Does making the memory run code of the program's? */
bool frames_have_allocator(const RequestObject *req);
void frames_fetch(RequestObject *req);

/* A message whose bytes have been received returns to its queue. */
void frames_unrecv(RequestObject *req);

#endif
