/* SPDX-License-Identifier: BSD-3-Clause */
/* low_level.h: operations that call a function when they are done. */
#ifndef UCP_EXT_OP_LOW_LEVEL_H
#define UCP_EXT_OP_LOW_LEVEL_H

#include "base/compat.h"

extern PyMethodDef low_level_methods[];

#endif
