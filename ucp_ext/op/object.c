/* SPDX-License-Identifier: BSD-3-Clause */
/* object.c: messages whose length the receiver need not know.
 *
 * recv_obj() gives an object with the bytes of the next message. Those that
 * have come stay with libumx until they are handed out, so that an await that
 * is given up leaves the message in its queue. For others a bytearray is made
 * once libumx has returned, and the request goes on with the bytes on their
 * way. An allocator of the program's is called for every message. */
#include "op/channel.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "object/message.h"
#include "op/am.h"
#include "op/event.h"
#include "worker/worker.h"

static umx_status
obj_post(RequestObject *req, const umx_op_params *params)
{
    umx_status status = umx_channel_recv_message(
        req->endpoint->umx, req->channel, &req->match, params, &req->op,
        &req->message);

    if (req->message != NULL) {
        req->info = *umx_message_info(req->message);
    }
    return status;
}

/* Make a bytearray of bytes that have come, whose message is consumed if that
 * works. */
static PyObject *
obj_result(RequestObject *req)
{
    umx_message *message = req->message;
    PyObject    *object;

    object = PyByteArray_FromStringAndSize(umx_message_data(message),
                                           (Py_ssize_t)req->info.length);
    if (object == NULL) {
        request_fail_result(req);
        return NULL;
    }
    req->message = NULL;
    message_drop(req->worker, message);
    return object;
}

static bool
has_allocator(const RequestObject *req)
{
    return request_function(req) != NULL;
}

/* Memory of the allocator, which may be longer than the message. */
static PyObject *
allocate(RequestObject *req)
{
    PyObject *object = request_call_allocator(
        req->worker->st, request_function(req), req->info.length, &req->hold);

    if (object != NULL && buffer_check_room(&req->hold, req->info.length) < 0) {
        buffer_release(&req->hold);
        Py_CLEAR(object);
    }
    return object;
}

static void
obj_fetch(RequestObject *req)
{
    request_fetch_into(
        req,
        has_allocator(req) ?
            allocate(req) :
            request_bytearray(req->worker->st, req->info.length, &req->hold));
}

static umx_status
obj_unrecv(RequestObject *req)
{
    return channel_unrecv_message(req, NULL);
}

static const op_type op_recv_obj = {
    .name         = "recv_obj",
    .flags        = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_FETCH | OP_OWN,
    .post         = obj_post,
    .note         = event_note_message_first,
    .result       = obj_result,
    .unrecv       = obj_unrecv,
    .runs_program = has_allocator,
    .fetch        = obj_fetch,
};

static const op_type op_recv_obj_into = {
    .name  = "recv_obj",
    .flags = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_FETCH | OP_LOOK | OP_OWN,
    .post  = obj_post,
    .note  = event_note_message_first,
    .unrecv       = obj_unrecv,
    .runs_program = has_allocator,
    .fetch        = obj_fetch,
};

PyObject *
messages_recv_obj(EndpointObject *self, uint16_t channel, PyObject *const *args,
                  Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"tag", "allocator"};
    PyObject                *values[2]  = {NULL};
    RequestObject           *req;

    if ((nargs != 0 || kwnames != NULL) &&
        (args_parse("recv_obj", args, nargs, kwnames, keywords, 2, 2, 0,
                    values) < 0 ||
         args_allocator(&values[1]) < 0)) {
        return NULL;
    }
    req = request_new(self->worker, self,
                      values[1] != NULL ? &op_recv_obj_into : &op_recv_obj);
    if (req == NULL) {
        return NULL;
    }
    req->channel    = channel;
    req->match.mask = UINT64_MAX;
    if (args_tag(self->worker->st, values[0], &req->match) < 0 ||
        (values[1] != NULL && request_set_function(req, values[1]) < 0)) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}
