/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.h: what libumx has recorded of all workers: umx/observe.h. */
#ifndef UCP_EXT_OBSERVE_OBSERVE_H
#define UCP_EXT_OBSERVE_OBSERVE_H

#include "base/state.h"

/* Functions of the module. */
extern PyMethodDef observe_methods[];

#endif
