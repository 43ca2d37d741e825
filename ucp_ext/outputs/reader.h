/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.h: who reads outputs of maps. */
#ifndef UCP_EXT_OUTPUTS_READER_H
#define UCP_EXT_OUTPUTS_READER_H

#include "outputs/outputs.h"

typedef struct ReaderObject {
    OWNED_HEAD;
    umx_outputs_reader *umx; /* NULL once it is given back */
    OutputsObject      *outputs;
} ReaderObject;

extern PyType_Spec map_reader_spec;

#endif
