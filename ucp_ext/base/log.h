/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h: lines of libumx and UCX on their way to Python, and the level of
 * Python's logger on its way to libumx. */
#ifndef UCP_EXT_BASE_LOG_H
#define UCP_EXT_BASE_LOG_H

#include "base/compat.h"

#include <stdatomic.h>

typedef struct mod_state mod_state;

/* Without the GIL, in any thread. */
void log_put(int level, const char *text);

extern atomic_uint log_num_lines;

/* Do lines wait for log_deliver()? */
static inline bool
log_is_due(void)
{
    return atomic_load_explicit(&log_num_lines, memory_order_relaxed) != 0;
}

/* Hand the lines that have come to the handler. Keeps exceptions. */
void log_deliver(mod_state *st);

/* Ask for the logger's level, if that was not done in the last 50 ms or
 * so. Keeps exceptions. */
void log_follow(mod_state *st);

/* Functions of the module. */
PyObject         *log_set_handler(PyObject *module, PyObject *args);
PyObject         *log_catch_up(PyObject *module, PyObject *ignored);
extern const char log_set_handler_doc[], log_catch_up_doc[];

#endif
