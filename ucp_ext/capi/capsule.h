/* SPDX-License-Identifier: BSD-3-Clause */
/* capsule.h: the table of functions for C code of the program, ucp_api.h. */
#ifndef UCP_EXT_CAPI_CAPSULE_H
#define UCP_EXT_CAPI_CAPSULE_H

#include "base/compat.h"

/* Add the capsule to the module. -1 with an exception. */
int capsule_init(PyObject *module);

#endif
