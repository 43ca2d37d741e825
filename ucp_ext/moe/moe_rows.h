/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_rows.h: rows of tokens and where they go, as functions of the module. */
#ifndef UCP_EXT_MOE_MOE_ROWS_H
#define UCP_EXT_MOE_MOE_ROWS_H

#include "base/compat.h"

extern PyMethodDef moe_methods[];

#endif
