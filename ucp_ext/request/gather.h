/* SPDX-License-Identifier: BSD-3-Clause */
/* gather.h: functions of the module for ucp.gather(). */
#ifndef UCP_EXT_REQUEST_GATHER_H
#define UCP_EXT_REQUEST_GATHER_H

#include "base/compat.h"

extern PyMethodDef gather_methods[];

#endif
