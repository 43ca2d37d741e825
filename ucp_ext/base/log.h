/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h: lines of libumx and UCX on their way to Python. */
#ifndef UCP_EXT_BASE_LOG_H
#define UCP_EXT_BASE_LOG_H

#include "base/compat.h"

typedef struct mod_state mod_state;

/* Without the GIL, in any thread. */
void log_put(int level, const char *text);

void      log_deliver(mod_state *st);
PyObject *log_set_handler(PyObject *module, PyObject *handler);

#endif
