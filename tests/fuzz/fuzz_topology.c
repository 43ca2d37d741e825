/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_topology.c: umi_tree_unpack(), which reads what a child process has
 * written, and the functions of topologies on what is accepted. It is encoded
 * again as it was, and no distance is longer than the way to the machine. XML
 * is in tests/soak/topologies.py, since its parser is hwloc's. */
#include "topology/tree.h"

#include <stdlib.h>
#include <string.h>

enum {
    NUM_TYPES = UMX_DEVICE_TYPE_CUDA + 1
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
check_distances(const umx_topology *tree, size_t from, umx_device_type type,
                umx_topology_distance *found)
{
    size_t num;

    require(umx_topology_distances(tree, from, type, found, &num) == UMX_OK);
    require(num <= tree->num_objects);
    for (size_t i = 0; i < num; i++) {
        require(found[i].object < tree->num_objects);
        require(found[i].object != from);
        require(found[i].distance <= tree->objects[from].depth);
        require(i == 0 || found[i - 1].distance <= found[i].distance);
    }
}

static void
check(const umx_topology *tree)
{
    umx_topology_distance *found = calloc(tree->num_objects, sizeof(*found));
    size_t                 object;

    require(found != NULL);
    for (size_t i = 0; i < tree->num_objects; i++) {
        check_distances(tree, i, (umx_device_type)(i % NUM_TYPES), found);
        require(umx_topology_get_cpus(tree, i) != NULL);
        (void)!umx_topology_find_name(tree, tree->objects[i].name, &object);
        (void)!umx_topology_find_pci(tree, &tree->objects[i].pci, &object);
        (void)!umx_topology_find_gpu(tree, i, &object);
    }
    free(found);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    umx_topology *tree;
    void         *again;
    size_t        again_len;

    if (umi_tree_unpack(data, len, &tree) != UMX_OK) {
        return 0;
    }
    check(tree);
    require(umi_tree_pack(tree, &again, &again_len) == UMX_OK);
    require(again_len == len);
    free(again);
    umi_tree_free(tree);
    return 0;
}
