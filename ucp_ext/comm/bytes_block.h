/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes_block.h: memory of malloc() that libumx has given, as a memoryview. */
#ifndef UCP_EXT_COMM_BYTES_BLOCK_H
#define UCP_EXT_COMM_BYTES_BLOCK_H

#include "base/state.h"

/* A memoryview of the memory, which is taken over. NULL with an exception: the
 * caller still has the memory. */
PyObject *bytes_block_new(mod_state *st, void *data, size_t len);

/* Take the memory back from a memoryview that the program has not seen. */
void *bytes_block_take_back(PyObject *view);

extern PyType_Spec bytes_block_spec;

#endif
