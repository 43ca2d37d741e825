/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffler.h: a shuffle in which this process takes part. */
#ifndef UCP_EXT_SHUFFLE_SHUFFLER_H
#define UCP_EXT_SHUFFLE_SHUFFLER_H

#include "base/state.h"

#include <umx/umx.h>

struct ShufflerObject {
    PyObject_HEAD WorkerObject *worker;
    umx_shuffler               *umx; /* NULL once it is given back */
    bool                        is_closed;
    PyObject                   *weakrefs;
};

/* -1 with an exception unless this thread may call libumx with it. */
int shuffler_check(const ShufflerObject *shuffler);

/* The exception of a status. */
PyObject *shuffler_error(const ShufflerObject *shuffler, umx_status status,
                         const char *op);

/* Give the shuffler of libumx back, in whichever thread. */
void shuffler_drop(ShufflerObject *self);

#endif
