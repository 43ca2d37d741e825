/* SPDX-License-Identifier: BSD-3-Clause */
/* address.h: the address of a worker. */
#ifndef UCP_EXT_TYPES_ADDRESS_H
#define UCP_EXT_TYPES_ADDRESS_H

#include "state.h"

/* A UCXAddress of these bytes, which are one. */
PyObject *address_new(mod_state *st, const void *data, size_t len);

/* A UCXAddress from one, or from a buffer. */
PyObject *address_from_object(mod_state *st, PyObject *obj);

extern PyType_Spec address_spec;

#endif
