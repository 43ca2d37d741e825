/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h: a ring of commands, and its producer. */
#ifndef UCP_EXT_PROXY_RING_H
#define UCP_EXT_PROXY_RING_H

#include "base/compat.h"

extern PyType_Spec ring_spec;

#endif
