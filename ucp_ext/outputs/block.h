/* SPDX-License-Identifier: BSD-3-Clause */
/* block.h: the bytes of one map for one partition. */
#ifndef UCP_EXT_OUTPUTS_BLOCK_H
#define UCP_EXT_OUTPUTS_BLOCK_H

#include "outputs/outputs.h"

/* Make the object of `block`, which is taken over, also with an exception. */
PyObject *map_block_new(OutputsObject *outputs, umx_outputs_block *block);

extern PyType_Spec map_block_spec;

#endif
