/* SPDX-License-Identifier: BSD-3-Clause */
/* pickled.h: functions of the module that pickle and unpickle the objects which
 * go between ranks. */
#ifndef UCP_EXT_COMM_PICKLED_H
#define UCP_EXT_COMM_PICKLED_H

#include "base/compat.h"

extern PyMethodDef pickled_methods[];

#endif
