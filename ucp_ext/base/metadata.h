/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.h: dictionaries of str, int and bytes, encoded. */
#ifndef UCP_EXT_BASE_METADATA_H
#define UCP_EXT_BASE_METADATA_H

#include "base/compat.h"

#include <umx/umx.h>

/* Encode a dict; -1 with an exception that names the wrong item. */
int metadata_encode(PyObject *dict, umx_metadata_builder *builder);

PyObject *metadata_decode(const umx_metadata *metadata);

#endif
