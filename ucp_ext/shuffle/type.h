/* SPDX-License-Identifier: BSD-3-Clause */
/* type.h: the types of this room, which the module makes. */
#ifndef UCP_EXT_SHUFFLE_TYPE_H
#define UCP_EXT_SHUFFLE_TYPE_H

#include "base/compat.h"

extern PyType_Spec shuffler_spec;

#endif
