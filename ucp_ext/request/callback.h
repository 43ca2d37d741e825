/* SPDX-License-Identifier: BSD-3-Clause */
/* callback.h: a function that is called when a request is over, for ucp._libs.
 */
#ifndef UCP_EXT_REQUEST_CALLBACK_H
#define UCP_EXT_REQUEST_CALLBACK_H

#include "request/request.h"

/* Tell the callback of a settled request. */
void callback_run(RequestObject *req);

/* The name that the program gave the operation. */
const char *callback_name(const RequestObject *req);

/* cb_func, cb_args=None, cb_kwargs=None, name=None */
enum {
    CB_FUNC,
    CB_ARGS,
    CB_KWARGS,
    CB_NAME,
    NUM_CB
};

/* Arguments of that order. -1 with an exception that names what is wrong. */
int callback_check(PyObject *const *values);

/* Give a posted request its callback. Takes over `req`. */
PyObject *callback_attach(RequestObject *req, PyObject *const *values,
                          PyObject *default_name, bool is_recv);

extern PyMethodDef callback_methods[];

#endif
