/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.h: where the devices of a host are. */
#ifndef UCP_EXT_TOPOLOGY_TOPOLOGY_H
#define UCP_EXT_TOPOLOGY_TOPOLOGY_H

#include "base/state.h"

extern PyType_Spec topology_spec;

/* The function load_hwloc() of the module. */
extern PyMethodDef topology_methods[];

#endif
