/* SPDX-License-Identifier: BSD-3-Clause */
/* frames.c: messages of frames, of endpoints and channels.
 *
 * recv_frames() gives the header and an object for each frame. As long as a
 * message that has come whole is not handed out it stays with libumx, and an
 * await that is given up leaves it in its queue; then it is copied into objects
 * of its own. One with bytes that are still with the sender needs memory first,
 * and the request goes on with the bytes on their way; allocators of the
 * program's are called once libumx has returned. */
#include "op/frames.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "object/message.h"
#include "op/am.h"
#include "op/channel.h"
#include "op/event.h"
#include "worker/worker.h"

enum {
    FEW_FRAMES = 32 /* on the C stack */
};

static const op_type op_recv_multi, op_recv_pickle;

/* ---- memory --------------------------------------------------------------
 */

frames_list *
frames_list_new(Py_ssize_t count)
{
    size_t size = sizeof(frames_list) + (size_t)count * sizeof(buffer_hold);
    frames_list *list = PyMem_Malloc(size + (size_t)count * sizeof(umx_buffer));

    if (list == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    list->count    = count;
    list->num_held = 0;
    list->buffers  = (umx_buffer *)(void *)((char *)list + size);
    return list;
}

void
frames_list_free(frames_list *list)
{
    for (Py_ssize_t i = 0; i < list->num_held; i++) {
        buffer_release(&list->holds[i]);
    }
    PyMem_Free(list);
}

void
frames_release(RequestObject *req)
{
    frames_list *list = frames_of(req);

    TAIL_OF(req, frames_tail)->list = NULL;
    if (list != NULL) {
        frames_list_free(list);
    }
}

static void
frames_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, frames_tail)->header);
    Py_CLEAR(TAIL_OF(req, frames_tail)->allocator);
}

int
frames_visit_list(const RequestObject *req, visitproc visit, void *arg)
{
    const frames_list *list = frames_of(req);
    int                rc   = 0;

    for (Py_ssize_t i = 0; rc == 0 && list != NULL && i < list->num_held; i++) {
        rc = request_visit_lent(req, &list->holds[i], visit, arg);
    }
    return rc;
}

static int
frames_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, frames_tail)->allocator);
    return frames_visit_list(req, visit, arg);
}

int
frames_hold(RequestObject *req, PyObject *objects, bool is_writable)
{
    PyObject    *items = args_items(objects, "expected a sequence of buffers");
    frames_list *list;
    int          rc = -1;

    if (items == NULL) {
        return -1;
    }
    list = frames_list_new(PyTuple_GET_SIZE(items));

    TAIL_OF(req, frames_tail)->list = list;
    request_track(req);
    for (Py_ssize_t i = 0; list != NULL && i < list->count; i++) {
        buffer_hold *hold = &list->holds[i];

        if (buffer_acquire(req->worker->st, PyTuple_GET_ITEM(items, i),
                           is_writable, hold) < 0) {
            goto done;
        }
        list->buffers[i] = hold->buf;
        list->num_held++;
    }
    rc = (list != NULL) ? 0 : -1;
done:
    Py_DECREF(items);
    return rc;
}

/* Is the allocator of a receive for frames from memory of a device alone? */
static inline bool
is_for_device(const RequestObject *req)
{
    return req->type == &op_recv_pickle;
}

static PyObject *
allocator_of(const RequestObject *req, const umx_frame *frame)
{
    return (!is_for_device(req) || frame->is_device) ?
               TAIL_OF(req, frames_tail)->allocator :
               NULL;
}

/* Memory for each frame: the list of its objects, held. */
static PyObject *
allocate_all(RequestObject *req, const umx_frames_info *info)
{
    Py_ssize_t   count   = (Py_ssize_t)info->count;
    PyObject    *objects = PyList_New(count);
    frames_list *list;

    if (objects == NULL) {
        return NULL;
    }
    list = frames_list_new(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        const umx_frame *frame = &info->frames[i];
        buffer_hold     *hold  = &list->holds[i];
        PyObject        *object;

        *hold  = (buffer_hold){0};
        object = request_allocate(req->worker, allocator_of(req, frame),
                                  frame->len, frame->is_device, hold);
        if (object == NULL) {
            frames_list_free(list);
            Py_DECREF(objects);
            return NULL;
        }
        PyList_SET_ITEM(objects, i, object);
        list->buffers[i] = hold->buf;
        list->num_held++;
    }
    if (list == NULL) {
        Py_DECREF(objects);
        return NULL;
    }
    TAIL_OF(req, frames_tail)->list = list;
    return objects;
}

/* The lengths of the frames in the user's memory. */
static PyObject *
lengths_of(const umx_frames_info *info)
{
    Py_ssize_t count = (Py_ssize_t)info->count;
    PyObject  *list  = PyList_New(count);

    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *length = PyLong_FromSize_t(info->frames[i].len);

        if (length == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, length);
        }
    }
    return list;
}

/* (header, frames), or what recv_multi() gives; takes over `frames`. */
static PyObject *
pack(const RequestObject *req, const umx_frames_info *info, PyObject *frames)
{
    PyObject *header, *result = NULL;

    if (req->type == &op_recv_multi) {
        return frames;
    }
    header = PyBytes_FromStringAndSize(info->header,
                                       (Py_ssize_t)info->header_len);
    if (header != NULL) {
        result = PyTuple_Pack(2, header, frames);
        Py_DECREF(header);
    }
    Py_DECREF(frames);
    return result;
}

static inline bool
is_into(const RequestObject *req)
{
    return req->type == &op_recv_frames_into;
}

/* Make what recv_frames() gives, and get memory for the bytes. */
static PyObject *
make_result(RequestObject *req)
{
    const umx_frames_info *info = umx_message_frames(req->message);
    PyObject              *frames, *result;

    frames = is_into(req) ? lengths_of(info) : allocate_all(req, info);
    if (frames == NULL) {
        return NULL;
    }
    result = pack(req, info, frames);
    if (result == NULL && !is_into(req)) {
        frames_release(req);
    }
    return result;
}

/* ---- receiving -----------------------------------------------------------
 */

static bool
has_device_frame(const RequestObject *req)
{
    const umx_frames_info *info = umx_message_frames(req->message);
    bool                   has  = false;

    for (size_t i = 0; i < info->count && !has; i++) {
        has = info->frames[i].is_device;
    }
    return has;
}

/* Is the receive's own allocator called? */
static bool
has_own_allocator(const RequestObject *req)
{
    return TAIL_OF(req, frames_tail)->allocator != NULL &&
           (!is_for_device(req) || has_device_frame(req));
}

/* Does making the memory run code of the program's? */
static bool
frames_have_allocator(const RequestObject *req)
{
    const WorkerObject *worker = req->worker;

    return !is_into(req) &&
           (has_own_allocator(req) || worker->am_host_allocator != NULL ||
            worker->am_device_allocator != NULL);
}

/* op_type.start() */
static bool
frames_start(RequestObject *req)
{
    const umx_frames_info *info = umx_message_frames(req->message);

    req->info.length = info->len;
    return !is_into(req) && umx_message_has_frames(req->message);
}

static void
frames_fetch(RequestObject *req)
{
    umx_message  *message = req->message;
    umx_op_params params;
    umx_status    status;

    req->result = make_result(req);
    if (req->result == NULL) {
        request_fail_fetch(req);
        return;
    }
    if (request_is_settled(req)) { /* given up in the allocator */
        return;
    }
    request_track(req);
    req->is_told = false;
    req->message = NULL;
    params       = event_op_params(req);
    status       = umx_message_recv_frames(&message, frames_of(req)->buffers,
                                           (size_t)frames_of(req)->count, &params,
                                           &req->op);
    request_fetched(req, message, status);
}

/* All frames as bytearrays, which nobody else sees before they are filled: they
 * need not be held. */
static PyObject *
copy_all(umx_message *message, const umx_frames_info *info, umx_buffer *buffers,
         umx_status *status_p)
{
    Py_ssize_t count   = (Py_ssize_t)info->count;
    PyObject  *objects = PyList_New(count);

    for (Py_ssize_t i = 0; objects != NULL && i < count; i++) {
        size_t    len    = info->frames[i].len;
        PyObject *object = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)len);

        if (object == NULL) {
            Py_CLEAR(objects);
        } else {
            PyList_SET_ITEM(objects, i, object);
            buffers[i] = umx_host_buffer(PyByteArray_AS_STRING(object), len);
        }
    }
    if (objects != NULL) {
        *status_p = umx_message_copy_frames(message, buffers, info->count);
        if (*status_p != UMX_OK) {
            Py_CLEAR(objects);
        }
    }
    return objects;
}

/* Make the result of a message in bytearrays. */
static PyObject *
make_bytearrays(RequestObject *req, umx_status *status_p)
{
    umx_message           *message = req->message;
    const umx_frames_info *info    = umx_message_frames(message);
    umx_buffer             few[FEW_FRAMES], *buffers = few;
    PyObject              *objects;

    if (info->count > FEW_FRAMES) {
        buffers = PyMem_Malloc(info->count * sizeof(*buffers));
        if (buffers == NULL) {
            return PyErr_NoMemory();
        }
    }
    objects = copy_all(message, info, buffers, status_p);
    if (buffers != few) {
        PyMem_Free(buffers);
    }
    return (objects != NULL) ? pack(req, info, objects) : NULL;
}

/* Make the result of a message in memory of an allocator. */
static PyObject *
fill_allocated(RequestObject *req, umx_status *status_p)
{
    PyObject *result = make_result(req);

    if (result == NULL) {
        return NULL;
    }
    *status_p = umx_message_copy_frames(req->message, frames_of(req)->buffers,
                                        (size_t)frames_of(req)->count);
    frames_release(req);
    if (*status_p != UMX_OK) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *
frames_result(RequestObject *req)
{
    umx_message *message = req->message;
    umx_status   status  = UMX_OK;
    PyObject    *result;

    result = frames_have_allocator(req) ? fill_allocated(req, &status) :
                                          make_bytearrays(req, &status);
    if (result == NULL) {
        if (status != UMX_OK) {
            errors_raise(req->worker->st, status, req->type->name, NULL);
        }
        request_fail_result(req);
        return NULL;
    }
    req->message = NULL;
    message_drop(req->worker, message);
    return result;
}

/* op_type.unrecv(): the message has its place in the queue still. */
static umx_status
frames_unrecv(RequestObject *req)
{
    umx_message       *message = req->message;
    const frames_list *list    = frames_of(req);

    if (message != NULL && list != NULL) {
        req->message = NULL;
        umx_message_unrecv_frames(message, list->buffers);
    }
    return UMX_OK;
}

static umx_status
recv_post(RequestObject *req, const umx_op_params *params)
{
    return umx_frames_recv_message(req->endpoint->umx, req->channel, params,
                                   &req->op, &req->message);
}

static umx_status
recv_into_post(RequestObject *req, const umx_op_params *params)
{
    return umx_frames_recv_fitting(
        req->endpoint->umx, req->channel, frames_of(req)->buffers,
        (size_t)frames_of(req)->count, params, &req->op, &req->message);
}

static void
recv_describe(const RequestObject *req, umx_status status, size_t capacity,
              char *text, size_t size)
{
    (void)capacity;
    if (request_is_length_error(status)) {
        snprintf(text, size,
                 "the buffers are too few or too short for the frames, which "
                 "have %zu bytes: the next receive gets the message; "
                 "recv_frames() without 'into' takes it whatever its size",
                 req->info.length);
    }
}

/* What receives have in common whose frames are in memory of their own. */
#define OWN_FRAMES                                                          \
    .post = recv_post, .note = event_note_message, .result = frames_result, \
    .unrecv = frames_unrecv, .start = frames_start,                         \
    .runs_program = frames_have_allocator, .fetch = frames_fetch,           \
    .release = frames_release, .clear = frames_clear,                       \
    .traverse = frames_traverse

enum {
    OWN_FLAGS = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_LOOK | OP_OWN |
                OP_BLOCK
};

const op_type op_recv_frames = {
    .name = "recv_frames", .flags = OWN_FLAGS, OWN_FRAMES};

static const op_type op_recv_multi = {
    .name = "recv_multi", .flags = OWN_FLAGS, OWN_FRAMES};

static const op_type op_recv_pickle = {
    .name = "recv_pickle", .flags = OWN_FLAGS | OP_DECODES, OWN_FRAMES};

const op_type op_recv_frames_into = {
    .name         = "recv_frames",
    .flags        = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_LOOK | OP_BLOCK,
    .post         = recv_into_post,
    .note         = event_note_message,
    .describe     = recv_describe,
    .unrecv       = frames_unrecv,
    .start        = frames_start,
    .runs_program = frames_have_allocator,
    .fetch        = frames_fetch,
    .release      = frames_release,
    .traverse     = frames_traverse,
};

/* Make a receive of a type; its allocator may be NULL or None. */
static RequestObject *
new_receive(EndpointObject *self, uint16_t channel, const op_type *type,
            PyObject *allocator)
{
    RequestObject *req;

    if (args_allocator(&allocator) < 0) {
        return NULL;
    }
    req = request_new(self->worker, self, type);
    if (req != NULL) {
        req->channel = channel;

        TAIL_OF(req, frames_tail)->allocator = Py_XNewRef(allocator);
    }
    return req;
}

PyObject *
messages_recv_frames(EndpointObject *self, uint16_t channel,
                     PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"allocator", "into"};
    PyObject                *values[2]  = {NULL};
    RequestObject           *req;

    if ((nargs != 0 || kwnames != NULL) &&
        args_parse("recv_frames", args, nargs, kwnames, keywords, 2, 1, 0,
                   values) < 0) {
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        values[i] = (values[i] == Py_None) ? NULL : values[i];
    }
    if (values[0] != NULL && values[1] != NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "allocator does not go with into: the memory is given");
        return NULL;
    }
    req = new_receive(
        self, channel,
        values[1] != NULL ? &op_recv_frames_into : &op_recv_frames, values[0]);
    if (req == NULL) {
        return NULL;
    }
    if (values[1] != NULL && frames_hold(req, values[1], true) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyObject *
messages_recv_multi(EndpointObject *self, uint16_t channel,
                    PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"allocator"};
    PyObject                *allocator  = NULL;
    RequestObject           *req;

    if ((nargs != 0 || kwnames != NULL) &&
        args_parse("recv_multi", args, nargs, kwnames, keywords, 1, 1, 0,
                   &allocator) < 0) {
        return NULL;
    }
    req = new_receive(self, channel, &op_recv_multi, allocator);
    return (req != NULL) ? request_post(req) : NULL;
}

PyObject *
messages_recv_pickle(EndpointObject *self, uint16_t channel,
                     PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"decode", "allocator"};
    PyObject                *values[2]  = {NULL};
    RequestObject           *req;

    if (args_parse("_recv_pickle", args, nargs, kwnames, keywords, 2, 2, 2,
                   values) < 0) {
        return NULL;
    }
    req = new_receive(self, channel, &op_recv_pickle, values[1]);
    if (req == NULL) {
        return NULL;
    }
    if (request_set_function(req, values[0]) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

/* ---- sending -------------------------------------------------------------
 */

static umx_status
send_post(RequestObject *req, const umx_op_params *params)
{
    PyObject   *given  = TAIL_OF(req, frames_tail)->header;
    const char *header = NULL;
    size_t      len    = 0;

    if (given != NULL) {
        header = PyBytes_AS_STRING(given);
        len    = (size_t)PyBytes_GET_SIZE(given);
    }
    return umx_frames_send(req->endpoint->umx, req->channel, header, len,
                           frames_of(req)->buffers,
                           (size_t)frames_of(req)->count, params, &req->op);
}

static void
send_describe(const RequestObject *req, umx_status status, size_t capacity,
              char *text, size_t size)
{
    (void)req;
    (void)capacity;
    if (status == UMX_ERR_EXCEEDS_LIMIT) {
        snprintf(text, size,
                 "more than Config.frames_max or frames_bytes_max allows");
    }
}

const op_type op_send_frames = {
    .name     = "send_frames",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = send_post,
    .describe = send_describe,
    .release  = frames_release,
    .clear    = frames_clear,
    .traverse = frames_traverse,
};

PyObject *
messages_send_frames(EndpointObject *self, uint16_t channel,
                     PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"buffers", "header"};
    PyObject                *values[2]  = {NULL};
    RequestObject           *req;

    if (args_parse("send_frames", args, nargs, kwnames, keywords, 2, 2, 1,
                   values) < 0) {
        return NULL;
    }
    req = request_new(self->worker, self, &op_send_frames);
    if (req == NULL) {
        return NULL;
    }
    req->channel = channel;
    if (am_parse_header(values[1], UMX_FRAMES_HEADER_MAX,
                        &TAIL_OF(req, frames_tail)->header) < 0 ||
        frames_hold(req, values[0], false) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}
