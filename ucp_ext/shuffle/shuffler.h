/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffler.h: a shuffle in which this process takes part. */
#ifndef UCP_EXT_SHUFFLE_SHUFFLER_H
#define UCP_EXT_SHUFFLE_SHUFFLER_H

#include "object/owned.h"

#include <umx/umx.h>

typedef struct ShufflerObject {
    OWNED_HEAD;
    umx_shuffler *umx;       /* NULL once it is given back */
    PyObject     *spill_dir; /* str; or NULL */
    int           error;     /* of the spill file, once it is given back */
    bool          is_closed;
} ShufflerObject;

/* -1 with an exception unless this thread may call libumx with it. */
int shuffler_check(const ShufflerObject *shuffler);

/* The exception of a status. */
PyObject *shuffler_error(const ShufflerObject *shuffler, umx_status status,
                         const char *op);

#endif
