/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc.h: the library hwloc, which is opened at run time. Types and numbers
 * are those of the ABI of its releases 2.x, which is libhwloc.so.15; its
 * headers are not needed to build this. Thread: any, but one for each topology.
 */
#ifndef UMI_HWLOC_H
#define UMI_HWLOC_H

#include <stdbool.h>
#include <umx/topology.h>

typedef struct umi_hwloc_topology umi_hwloc_topology;
typedef struct umi_hwloc_bitmap   umi_hwloc_bitmap;

enum {
    UMI_HWLOC_BRIDGE     = 14, /* types of objects */
    UMI_HWLOC_PCI_DEVICE = 15,
    UMI_HWLOC_OS_DEVICE  = 16,

    UMI_HWLOC_DEPTH_BRIDGE     = -4,
    UMI_HWLOC_DEPTH_PCI_DEVICE = -5,
    UMI_HWLOC_DEPTH_OS_DEVICE  = -6,

    UMI_HWLOC_OS_BLOCK       = 0, /* types of OS devices */
    UMI_HWLOC_OS_NETWORK     = 2,
    UMI_HWLOC_OS_OPENFABRICS = 3
};

/* Has the first members of hwloc's object; what is not used has no name. */
typedef struct umi_hwloc_object {
    int                             type;
    char                           *subtype;
    unsigned                        os_index;
    char                           *name; /* may be NULL */
    uint64_t                        memory;
    const void                     *attributes; /* may be NULL */
    int                             depth;
    unsigned                        logical_index;
    const struct umi_hwloc_object  *cousins[2];
    const struct umi_hwloc_object  *parent; /* NULL: the machine */
    unsigned                        sibling_rank;
    const struct umi_hwloc_object  *siblings[2];
    unsigned                        arity;
    const struct umi_hwloc_object **children;
    const struct umi_hwloc_object  *first_and_last[2];
    int                             is_symmetric;
    unsigned                        memory_arity;
    const struct umi_hwloc_object  *memory_child;
    unsigned                        io_arity;
    const struct umi_hwloc_object  *io_child;
    unsigned                        misc_arity;
    const struct umi_hwloc_object  *misc_child;
    const umi_hwloc_bitmap         *cpus; /* NULL: not an object with CPUs */
} umi_hwloc_object;

/* What the attributes of a PCI device say. */
typedef struct umi_hwloc_pci {
    umx_pci_address address;
    uint16_t        class_id;
    uint16_t        vendor_id;
    uint16_t        device_id;
} umi_hwloc_pci;

/* hwloc's functions. */
#define UMI_HWLOC_FUNCTIONS(X)                                              \
    X(unsigned, api_version, "hwloc_get_api_version", (void))               \
    X(int, init, "hwloc_topology_init", (umi_hwloc_topology * *topology_p)) \
    X(void, destroy, "hwloc_topology_destroy",                              \
      (umi_hwloc_topology * topology))                                      \
    X(int, set_io_filter, "hwloc_topology_set_io_types_filter",             \
      (umi_hwloc_topology * topology, int filter))                          \
    X(int, set_xml, "hwloc_topology_set_xmlbuffer",                         \
      (umi_hwloc_topology * topology, const char *xml, int size))           \
    X(int, load, "hwloc_topology_load", (umi_hwloc_topology * topology))    \
    X(int, num_at, "hwloc_get_nbobjs_by_depth",                             \
      (umi_hwloc_topology * topology, int depth))                           \
    X(const umi_hwloc_object *, get_at, "hwloc_get_obj_by_depth",           \
      (umi_hwloc_topology * topology, int depth, unsigned number))          \
    X(const char *, type_string, "hwloc_obj_type_string", (int type))       \
    X(int, next_cpu, "hwloc_bitmap_next",                                   \
      (const umi_hwloc_bitmap *bitmap, int previous))

typedef struct umi_hwloc {
#define UMI_HWLOC_MEMBER(type, name, symbol, args) type(*name) args;
    UMI_HWLOC_FUNCTIONS(UMI_HWLOC_MEMBER)
#undef UMI_HWLOC_MEMBER
    bool has_wide_domains; /* PCI domains have 32 bits */
} umi_hwloc;

/* Give hwloc, which is opened if it is not yet; NULL: umx_hwloc_load() says
 * why. */
const umi_hwloc *umi_hwloc_get(void);

/* Load a topology, of an XML of `size` bytes with the '\0' or, if that is NULL,
 * of this host. NULL: hwloc has failed. */
umi_hwloc_topology *umi_hwloc_topology_new(const umi_hwloc *hwloc,
                                           const char *xml, int size);

/* Read the attributes of a PCI device, or of a bridge that is one. */
void umi_hwloc_get_pci(const umi_hwloc *hwloc, const umi_hwloc_object *object,
                       umi_hwloc_pci *pci);

/* True if this bridge is no PCI device. */
bool umi_hwloc_is_host_bridge(const umi_hwloc_object *bridge);

#endif
