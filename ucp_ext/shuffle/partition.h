/* SPDX-License-Identifier: BSD-3-Clause */
/* partition.h: functions of the module that partition tables. */
#ifndef UCP_EXT_SHUFFLE_PARTITION_H
#define UCP_EXT_SHUFFLE_PARTITION_H

#include "base/compat.h"

extern PyMethodDef partition_methods[];

#endif
