/* SPDX-License-Identifier: BSD-3-Clause */
/* context.h: UCX's context, with the settings of libumx. */
#ifndef UCP_EXT_OBJECT_CONTEXT_H
#define UCP_EXT_OBJECT_CONTEXT_H

#include "base/state.h"

#include <umx/umx.h>

/* Features that ucp._libs may use under a context, as UCX's bits. */
enum {
    FEATURE_TAG    = 1 << 0,
    FEATURE_RMA    = 1 << 1,
    FEATURE_STREAM = 1 << 5,
    FEATURE_AM     = 1 << 6
};

struct ContextObject {
    PyObject_HEAD mod_state *st;
    umx_context             *umx;
    unsigned                 features;
};

#endif
