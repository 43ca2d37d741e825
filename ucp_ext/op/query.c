/* SPDX-License-Identifier: BSD-3-Clause */
/* query.c: questions to the peer. */
#include "op/query.h"

#include "object/endpoint.h"
#include "op/event.h"

#include <stdlib.h>
#include <string.h>

static umx_status
ping_post(RequestObject *req, const umx_op_params *params)
{
    return umx_ep_ping(req->endpoint->umx, params, &req->op);
}

static umx_status
peer_info_post(RequestObject *req, const umx_op_params *params)
{
    return umx_ep_peer_info(req->endpoint->umx, params, &req->op);
}

static PyObject *
ping_result(RequestObject *req)
{
    return PyFloat_FromDouble((double)req->ns * 1e-9);
}

static PyObject *
peer_info_result(RequestObject *req)
{
    const char *text = TAIL_OF(req, info_tail)->text;

    if (text == NULL) {
        return PyErr_NoMemory();
    }
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static void
peer_info_clear(RequestObject *req)
{
    free(TAIL_OF(req, info_tail)->text);
    TAIL_OF(req, info_tail)->text = NULL;
}

const op_type op_ping = {
    .name   = "ping",
    .flags  = 0,
    .post   = ping_post,
    .note   = event_note_time,
    .result = ping_result,
};

const op_type op_peer_info = {
    .name   = "peer_info",
    .flags  = OP_DECODES,
    .post   = peer_info_post,
    .note   = event_note_info,
    .result = peer_info_result,
    .clear  = peer_info_clear,
};
