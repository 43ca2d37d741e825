/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.h: what accepts connections. */
#ifndef UCP_EXT_TYPE_LISTENER_H
#define UCP_EXT_TYPE_LISTENER_H

#include "base/event.h"
#include "base/state.h"

struct ListenerObject {
    PyObject_HEAD WorkerObject *worker;
    umx_listener               *umx; /* NULL once closed */
    event                       event;
    bool                        is_remote_closed; /* libumx has told */
    PyObject                   *on_accept;
    PyObject                   *on_remote_close; /* NULL: not allowed */
    PyObject                   *host;
    int                         port;
    bool                        is_dual; /* of IPv4 and IPv6 */
    PyObject                   *weakrefs;
};

PyObject *listener_new(WorkerObject *worker, PyObject *sockaddr,
                       PyObject *on_accept, PyObject *backlog,
                       PyObject *timeout, PyObject *on_remote_close,
                       PyObject *window);

#endif
