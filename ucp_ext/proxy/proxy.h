/* SPDX-License-Identifier: BSD-3-Clause */
/* proxy.h: a proxy, as one rank has it. */
#ifndef UCP_EXT_PROXY_PROXY_H
#define UCP_EXT_PROXY_PROXY_H

#include "request/request.h"

#include <umx/proxy.h>

#include "comm/communicator.h"

typedef struct ProxyObject {
    OWNED_HEAD;
    umx_proxy *umx; /* NULL until it begins to be made, and once it is given
                       back */
    CommObject      *comm;
    umx_proxy_params params;
    bool             is_closed;
} ProxyObject;

/* The tail of the operations of this room. */
typedef struct TAIL proxy_tail {
    ProxyObject *proxy;
    PyObject    *object; /* a tuple; or NULL */
    uint64_t     number; /* a timeout, or what the operation is about */
} proxy_tail;

/* -1 with an exception unless this thread may call libumx with it. */
int proxy_check(const ProxyObject *proxy);

/* Begin an operation; `object` may be NULL. NULL with an exception. */
RequestObject *proxy_request(ProxyObject *proxy, PyObject *object,
                             const op_type *type);

/* op_type.clear() and op_type.traverse() of operations. */
void proxy_request_clear(RequestObject *req);
int  proxy_request_traverse(const RequestObject *req, visitproc visit,
                            void *arg);

/* The handle of a Memory, or of None, that is open. -1 with an exception. */
int proxy_parse_memory(PyObject *memory, const char *name, umx_memh **memh_p);

extern PyType_Spec proxy_spec;

#endif
