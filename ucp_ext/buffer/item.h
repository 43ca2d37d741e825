/* SPDX-License-Identifier: BSD-3-Clause */
/* item.h: the items of which an object's memory consists. */
#ifndef UCP_EXT_BUFFER_ITEM_H
#define UCP_EXT_BUFFER_ITEM_H

#include "base/state.h"

#include <umx/umx.h>

/* Bytes of an item; 1 if the memory has no other items. 0 with an exception. */
size_t item_size(mod_state *st, PyObject *obj);

/* The type of the items, which are numbers or pairs of them; -1 with an
 * exception. */
int item_dtype(mod_state *st, PyObject *obj, umx_dtype *dtype_p);

/* NumPy's name of a type, as a str; NULL with an exception. */
PyObject *item_dtype_name(umx_dtype dtype);

#endif
