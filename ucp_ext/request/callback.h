/* SPDX-License-Identifier: BSD-3-Clause */
/* callback.h: operations that call a function when they are done. */
#ifndef UCP_EXT_REQUEST_CALLBACK_H
#define UCP_EXT_REQUEST_CALLBACK_H

#include "compat.h"
#include "state.h"

/* Tell the callback of a settled request. */
void callback_run(RequestObject *req);

/* The name that the program gave the operation. */
const char *callback_name(const RequestObject *req);

extern PyMethodDef callback_methods[];

#endif
