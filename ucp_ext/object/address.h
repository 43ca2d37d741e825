/* SPDX-License-Identifier: BSD-3-Clause */
/* address.h: the address of a worker. */
#ifndef UCP_EXT_OBJECT_ADDRESS_H
#define UCP_EXT_OBJECT_ADDRESS_H

#include "base/state.h"

typedef struct AddressObject {
    PyObject_HEAD PyObject *bytes;
} AddressObject;

/* Make a UCXAddress of bytes that are known to be an address. */
PyObject *address_new(mod_state *st, const void *data, size_t len);

/* Make a UCXAddress from a UCXAddress or a buffer. */
PyObject *address_from_object(mod_state *st, PyObject *obj);

#endif
