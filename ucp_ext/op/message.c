/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c: messages with metadata, and the bytes of messages that have come.
 */
#include "op/message.h"

#include "base/errors.h"
#include "op/channel.h"
#include "op/frames.h"
#include "worker/worker.h"

/* ---- a message that has come ---------------------------------------------
 */

static umx_status
message_recv_post(RequestObject *req, const umx_op_params *params)
{
    return umx_message_recv(&req->message, &req->hold.buf, params, &req->op);
}

static umx_status
message_unrecv(RequestObject *req)
{
    return channel_unrecv_message(req, TAIL_OF(req, message_tail)->header);
}

static void
message_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, message_tail)->header);
}

const op_type op_message_recv = {
    .name   = "Message.recv",
    .flags  = OP_RECV | OP_UNRECV | OP_UNRECV_LATE,
    .post   = message_recv_post,
    .result = request_length,
    .unrecv = message_unrecv,
    .clear  = message_clear,
};

/* ---- messages with metadata: type/message_sender.c posts them --------------
 */

_Static_assert(offsetof(sent_tail, list) == offsetof(frames_tail, list),
               "frames_release()");

/* Forget the endpoints that the message was sent to. */
static void
sent_forget(RequestObject *req)
{
    sent *what = TAIL_OF(req, sent_tail)->sent;

    if (what == NULL) {
        return;
    }
    TAIL_OF(req, sent_tail)->sent = NULL;
    for (size_t i = 0; i < what->count; i++) {
        Py_DECREF(what->endpoints[i]);
    }
    PyMem_Free(what);
}

static int
sent_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const sent *what = TAIL_OF(req, sent_tail)->sent;

    for (size_t i = 0;
         what != NULL && !request_is_in_flight(req) && i < what->count; i++) {
        Py_VISIT(what->endpoints[i]);
    }
    return frames_visit_list(req, visit, arg);
}

/* Make the exception of a message to several endpoints: .results has None or an
 * exception for each. */
static PyObject *
several_error(RequestObject *self)
{
    sent     *what    = TAIL_OF(self, sent_tail)->sent;
    PyObject *results = PyList_New((Py_ssize_t)what->count);
    PyObject *exc;

    for (size_t i = 0; results != NULL && i < what->count; i++) {
        umx_status status = (what->statuses[i] == UMX_INPROGRESS) ?
                                self->status :
                                what->statuses[i];
        PyObject  *result = (status == UMX_OK) ?
                                Py_NewRef(Py_None) :
                                errors_new(self->worker->st, status,
                                           self->type->name, NULL);

        if (result == NULL) {
            Py_CLEAR(results);
        } else {
            PyList_SET_ITEM(results, (Py_ssize_t)i, result);
        }
    }
    if (results == NULL) {
        return NULL;
    }
    exc = request_status_error(self, self->status, &self->info, 0);
    return request_with_results(self, exc, results);
}

static PyObject *
sent_error(RequestObject *req)
{
    return (TAIL_OF(req, sent_tail)->sent != NULL) ?
               several_error(req) :
               request_status_error(req, req->status, &req->info,
                                    req->hold.buf.len);
}

const op_type op_send_message = {
    .name     = "MessageSender.send",
    .flags    = OP_SEND | OP_PLAIN,
    .error    = sent_error,
    .release  = frames_release,
    .forget   = sent_forget,
    .traverse = sent_traverse,
};

const op_type op_drain_sender = {
    .name  = "MessageSender.wait_sent",
    .flags = 0,
};
