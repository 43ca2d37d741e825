/* SPDX-License-Identifier: BSD-3-Clause */
/* tree.h: the objects of a topology, and their encoding, in which a child
 * process gives them to its parent. Thread: the owner, until the tree is
 * complete; then any. */
#ifndef UMI_TREE_H
#define UMI_TREE_H

#include <stdbool.h>
#include <umx/topology.h>

enum {
    UMI_TREE_OBJECTS_MAX = 65536,
    UMI_TREE_DEPTH_MAX   = 256,
    UMI_TREE_BYTES_MAX   = 128 << 20 /* of an encoded tree */
};

typedef struct umi_cpus {
    uint64_t words[UMX_TOPOLOGY_CPU_WORDS];
} umi_cpus;

/* Has objects[i].parent < i: so each object is below object 0, the machine,
 * which is of the kind UMX_TOPOLOGY_CPUS and has CPUs. Ways up end there. */
struct umx_topology {
    umx_topology_object *objects;
    size_t               num_objects;
    size_t               max_objects;
    umi_cpus           **cpus; /* of each object; NULL: those of its parent */
};

/* Give a number in the order of PCI addresses. */
static inline uint64_t
umi_pci_number(const umx_pci_address *address)
{
    return (uint64_t)address->domain << 32 | (uint64_t)address->bus << 16 |
           (uint64_t)address->device << 8 | address->function;
}

umx_topology *umi_tree_new(void);
void          umi_tree_free(umx_topology *tree);

/* Add a copy of an object, and of its CPUs, which may be NULL unless it is the
 * machine. Its depth is filled in.
 *
 * UMX_ERR_INVALID_PARAM (the parent, the kind, the type, a name without an
 * end); UMX_ERR_EXCEEDS_LIMIT; UMX_ERR_NO_MEMORY */
umx_status umi_tree_add(umx_topology *tree, const umx_topology_object *object,
                        const umi_cpus *cpus);

/* Encode a tree to allocated memory. UMX_ERR_NO_MEMORY */
umx_status umi_tree_pack(const umx_topology *tree, void **data_p,
                         size_t *len_p);

/* Decode a tree, whoever has written it. UMX_ERR_PROTOCOL, or as
 * umi_tree_add() */
umx_status umi_tree_unpack(const void *data, size_t len, umx_topology **tree_p);

#endif
