/* SPDX-License-Identifier: BSD-3-Clause */
/* writer.h: the output of a map while it is written. */
#ifndef UCP_EXT_OUTPUTS_WRITER_H
#define UCP_EXT_OUTPUTS_WRITER_H

#include "base/compat.h"

extern PyType_Spec map_writer_spec;

#endif
