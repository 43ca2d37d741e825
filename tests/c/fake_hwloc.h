/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_hwloc.h: hwloc with the objects that a test adds, and with faults.
 *
 * A test finds it by dlopen(NULL or "libhwloc.so.15") if it says `link:
 * fake_hwloc wrap=dlopen wrap=dlsym wrap=dlclose`. The topology with which
 * libumx looks for the layout of PCI addresses is there, too. Thread: one at a
 * time. */
#ifndef FAKE_HWLOC_H
#define FAKE_HWLOC_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/hwloc.h"

typedef enum fake_hwloc_fault {
    FAKE_HWLOC_WORKS,
    FAKE_HWLOC_FAILS,   /* hwloc_topology_load() does, ... */
    FAKE_HWLOC_CRASHES, /* ... reads from a wrong address, ... */
    FAKE_HWLOC_ABORTS,
    FAKE_HWLOC_HANGS,
    FAKE_HWLOC_REFUSES /* hwloc_topology_set_xmlbuffer() does */
} fake_hwloc_fault;

typedef struct fake_hwloc_state {
    bool             is_missing;  /* no library */
    const char      *no_symbol;   /* a symbol that the library lacks */
    unsigned         api_version; /* 0x00020b00 */
    bool             is_wide;     /* PCI domains have 32 bits */
    bool             is_strange;  /* PCI addresses have an unknown layout */
    fake_hwloc_fault fault;       /* not of the topology for the layout */
    int              num_open;    /* topologies not destroyed */
    int              num_handles; /* not closed */
    int              num_reads;   /* of an XML by this process */
} fake_hwloc_state;

extern fake_hwloc_state fake_hwloc;

/* Reset all of it; there is one object, the machine, which has CPUs 0 and 1. */
void fake_hwloc_reset(void);

/* Add an object, which the caller may change. `type` is one of hwloc's. */
umi_hwloc_object *fake_hwloc_add(umi_hwloc_object *parent, int type);
umi_hwloc_object *fake_hwloc_machine(void);

/* Add objects with attributes. */
umi_hwloc_object *fake_hwloc_add_host_bridge(umi_hwloc_object *parent);
umi_hwloc_object *fake_hwloc_add_pci(umi_hwloc_object *parent, int type,
                                     umx_pci_address address, uint16_t class_id,
                                     uint16_t vendor_id);
umi_hwloc_object *fake_hwloc_add_os(umi_hwloc_object *parent, int os_type,
                                    const char *name);

/* Let an object have CPUs `first` to `last`; -1: without an end. */
void fake_hwloc_set_cpus(umi_hwloc_object *object, int first, int last);

#endif
