/* SPDX-License-Identifier: BSD-3-Clause */
/* many.c: several messages by one request, which is done when all are. */
#include "op/many.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "op/event.h"
#include "worker/worker.h"

/* ---- memory --------------------------------------------------------------
 */

/* Allocate room for `count` items; NULL with an exception. */
static many *
alloc_many(Py_ssize_t count)
{
    many *all = PyMem_Malloc(sizeof(*all) + (size_t)count * sizeof(many_item));

    if (all == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    all->count = 0;
    all->lost  = 0;
    return all;
}

/* Add an item that holds `buffer`. -1 with an exception: the item holds
 * nothing. */
static inline int
add_item(many *all, RequestObject *req, PyObject *buffer, bool is_writable)
{
    many_item *item = &all->items[all->count++];

    item->parent      = req;
    item->op          = NULL;
    item->status      = UMX_OK;
    item->info.length = 0;
    return buffer_acquire(req->worker->st, buffer, is_writable, &item->hold);
}

/* To hold bytes or a bytearray runs no code of the program's and allocates no
 * object, which could run the collector: a list of them stays as it is while
 * they are held, one after the other, and needs no copy. Where one is refused,
 * nothing more is read from the list. */
static bool
is_list_of_bytes(PyObject *buffers)
{
    if (!PyList_CheckExact(buffers)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(buffers); i++) {
        PyObject *item = PyList_GET_ITEM(buffers, i); /* borrowed */

        if (!PyByteArray_CheckExact(item) && !PyBytes_CheckExact(item)) {
            return false;
        }
    }
    return true;
}

int
many_hold(RequestObject *req, PyObject *buffers, const umx_match *match)
{
    bool       is_writable = (req->type == &op_recv_many);
    PyObject **objects; /* borrowed from `items` */
    Py_ssize_t count;
    many      *all;
    int        rc    = 0;
    PyObject  *items = is_list_of_bytes(buffers) ?
                           Py_NewRef(buffers) :
                           args_items(buffers, "expected a sequence of buffers");

    if (items == NULL) {
        return -1;
    }
    objects = PySequence_Fast_ITEMS(items);
    count   = PySequence_Fast_GET_SIZE(items);
    all     = alloc_many(count);
    if (all == NULL) {
        Py_DECREF(items);
        return -1;
    }
    all->match                   = *match;
    TAIL_OF(req, many_tail)->all = all;
    for (Py_ssize_t i = 0; rc == 0 && i < count; i++) {
        rc = add_item(all, req, objects[i], is_writable);
    }
    request_track(req);
    Py_DECREF(items);
    return rc;
}

static void
many_forget(RequestObject *req)
{
    many *all = many_of(req);

    if (all == NULL) {
        return;
    }
    TAIL_OF(req, many_tail)->all = NULL;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        buffer_release(&all->items[i].hold);
    }
    PyMem_Free(all);
}

static int
many_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const many *all = many_of(req);
    int         rc  = 0;

    for (Py_ssize_t i = 0; rc == 0 && all != NULL && i < all->count; i++) {
        rc = request_visit_lent(req, &all->items[i].hold, visit, arg);
    }
    return rc;
}

/* ---- posting -------------------------------------------------------------
 */

static inline umx_status
post_item(RequestObject *req, many_item *item, const umx_op_params *params)
{
    umx_ep *ep = req->endpoint->umx;

    if (req->type == &op_send_many) {
        return umx_channel_send(ep, req->channel, &many_of(req)->match,
                                &item->hold.buf, params, &item->op);
    }
    return umx_channel_recv(ep, req->channel, &many_of(req)->match,
                            &item->hold.buf, params, &item->op, &item->info);
}

static umx_status
many_post(RequestObject *req, const umx_op_params *ignored)
{
    many         *all    = many_of(req);
    umx_op_params params = event_item_params(all->items);

    (void)ignored;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        many_item *item = &all->items[i];

        params.arg   = item;
        item->status = post_item(req, item, &params);
        if (item->status == UMX_INPROGRESS) {
            req->num_pending++;
        } else if (item->status == UMX_ERR_PEER_CLOSED) {
            item->status = UMX_ERR_CLOSED;
        }
    }
    return (req->num_pending != 0) ? UMX_INPROGRESS : many_status(all);
}

/* ---- giving up -----------------------------------------------------------
 */

static bool
recv_many_has_unseen(const RequestObject *req)
{
    const many *all = many_of(req);

    for (Py_ssize_t i = 0; all != NULL && i < all->count; i++) {
        if (all->items[i].op == NULL && all->items[i].status == UMX_OK) {
            return true;
        }
    }
    return false;
}

static void
recv_many_give_back(RequestObject *req)
{
    many *all = many_of(req);

    if (all == NULL || req->endpoint->umx == NULL) {
        return;
    }
    for (Py_ssize_t i = 0; i < all->count; i++) {
        many_item *item = &all->items[i];

        if (item->op == NULL && item->status == UMX_OK) {
            item->status = UMX_ERR_CANCELED;
            (void)!umx_channel_unrecv(req->endpoint->umx, req->channel,
                                      &item->info, &item->hold.buf);
        }
    }
}

/* Release all buffers: libumx has no use for them any more. */
static void
release_holds(RequestObject *req)
{
    many *all;

    for (Py_ssize_t i = 0; (all = many_of(req)) != NULL && i < all->count;
         i++) {
        buffer_release(&all->items[i].hold);
    }
}

static bool
many_cancel(RequestObject *req, cancel_fn *cancel)
{
    many *all     = many_of(req);
    bool  is_free = true;

    for (Py_ssize_t i = 0; all != NULL && i < all->count; i++) {
        if (all->items[i].op != NULL) {
            is_free &= (cancel(all->items[i].op) == UMX_OK);
        }
    }
    if (req->type->give_back != NULL) {
        req->type->give_back(req); /* no item of its own waits for them now */
    }
    if (is_free) {
        release_holds(req);
    }
    return is_free;
}

/* ---- errors --------------------------------------------------------------
 */

static PyObject *
many_results(RequestObject *self)
{
    many     *all  = many_of(self);
    PyObject *list = PyList_New(all->count);

    for (Py_ssize_t i = 0; list != NULL && i < all->count; i++) {
        many_item *item   = &all->items[i];
        PyObject  *result = Py_NewRef(Py_None);

        if (item->status != UMX_OK) {
            Py_SETREF(result,
                      request_status_error(self, item->status, &item->info,
                                           item->hold.buf.len));
        }
        if (result == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, result);
        }
    }
    return list;
}

static PyObject *
many_error(RequestObject *self)
{
    PyObject *results, *exc;

    if (many_of(self) == NULL) { /* it was not posted */
        return request_status_error(self, self->status, &self->info, 0);
    }
    results = many_results(self);
    if (results == NULL) {
        return NULL;
    }
    exc = PyObject_CallFunction(self->worker->st->exceptions[EXC_UCXError], "s",
                                "some of the messages failed; see .results");
    return request_with_results(self, exc, results);
}

const op_type op_send_many = {
    .name     = "send_many",
    .flags    = OP_SEND,
    .post     = many_post,
    .error    = many_error,
    .cancel   = many_cancel,
    .forget   = many_forget,
    .traverse = many_traverse,
};

const op_type op_recv_many = {
    .name       = "recv_many",
    .flags      = OP_RECV | OP_STAYS,
    .post       = many_post,
    .error      = many_error,
    .cancel     = many_cancel,
    .has_unseen = recv_many_has_unseen,
    .give_back  = recv_many_give_back,
    .forget     = many_forget,
    .traverse   = many_traverse,
};
