/* SPDX-License-Identifier: BSD-3-Clause */
/* read.h: a topology of hwloc's as a tree. Thread: any. */
#ifndef UMI_TOPOLOGY_READ_H
#define UMI_TOPOLOGY_READ_H

#include "topology/hwloc.h"

/* Have hwloc load a topology, and copy the objects that are devices or above
 * one. hwloc may crash on an XML. UMX_ERR_INVALID_PARAM (the XML),
 * UMX_ERR_IO_ERROR (this host), UMX_ERR_EXCEEDS_LIMIT, UMX_ERR_NO_MEMORY */
umx_status umi_topology_read(const umi_hwloc *hwloc, const char *xml, int size,
                             umx_topology **tree_p);

/* Do so with an XML in a child process, whose crash is UMX_ERR_INVALID_PARAM.
 * UMX_ERR_TIMED_OUT, UMX_ERR_NO_RESOURCE (no child) */
umx_status umi_topology_read_in_child(const umi_hwloc *hwloc, const char *xml,
                                      int size, uint64_t timeout_ns,
                                      umx_topology **tree_p);

#endif
