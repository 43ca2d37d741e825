/* SPDX-License-Identifier: BSD-3-Clause */
/* proxy.h: a proxy, as one rank has it. */
#ifndef UCP_EXT_PROXY_PROXY_H
#define UCP_EXT_PROXY_PROXY_H

#include "request/request.h"

#include <umx/proxy.h>

#include "comm/joint.h"

typedef struct ProxyObject {
    JOINT_HEAD;
    umx_proxy_params params;
} ProxyObject;

/* The tail of the operations of this room. */
typedef struct TAIL proxy_tail {
    ProxyObject *proxy;
    PyObject    *object; /* a tuple; or NULL: as joint_tail */
    uint64_t     number; /* a timeout, or what the operation is about */
} proxy_tail;

/* The handle of a Memory, or of None, that is open. -1 with an exception. */
int proxy_parse_memory(PyObject *memory, const char *name, umx_memh **memh_p);

extern PyType_Spec proxy_spec;

#endif
