/* SPDX-License-Identifier: BSD-3-Clause */
/* distance.c: edges between devices. The number of an object is greater than
 * the number of its parent, so the way up from the greater of two numbers leads
 * to what both are below. */
#define _GNU_SOURCE /* qsort_r() */
#include <stdlib.h>
#include <string.h>

#include "topology/tree.h"

static size_t
common_ancestor(const umx_topology *tree, size_t a, size_t b)
{
    while (a != b) {
        if (a > b) {
            a = tree->objects[a].parent;
        } else {
            b = tree->objects[b].parent;
        }
    }
    return a;
}

/* Find the object that distances from `object` begin at. */
static size_t
start_of(const umx_topology *tree, size_t object)
{
    while (tree->objects[object].kind == UMX_TOPOLOGY_OS_DEVICE) {
        object = tree->objects[object].parent; /* the machine is none */
    }
    return object;
}

/* Count the edges up to the host bridge, which is the uppermost bridge; without
 * a bridge, up to the nearest CPUs. */
static unsigned
farthest(const umx_topology *tree, size_t start)
{
    size_t top = start;

    for (size_t i = start; tree->objects[i].kind != UMX_TOPOLOGY_CPUS;
         i        = tree->objects[i].parent) {
        bool is_bridge = tree->objects[i].kind != UMX_TOPOLOGY_PCI_DEVICE;

        top = is_bridge ? i : tree->objects[i].parent;
    }
    return tree->objects[start].depth - tree->objects[top].depth;
}

static int
compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int
compare(const void *left, const void *right, void *arg)
{
    const umx_topology          *tree = arg;
    const umx_topology_distance *a    = left;
    const umx_topology_distance *b    = right;
    const umx_topology_object   *of_a = &tree->objects[a->object];
    const umx_topology_object   *of_b = &tree->objects[b->object];
    int order = compare_numbers(a->distance, b->distance);

    if (order == 0) {
        order = strcmp(of_a->name, of_b->name);
    }
    if (order == 0) {
        order = compare_numbers(umi_pci_number(&of_a->pci),
                                umi_pci_number(&of_b->pci));
    }
    return (order == 0) ? compare_numbers(a->object, b->object) : order;
}

umx_status
umx_topology_distances(const umx_topology *topology, size_t object,
                       umx_device_type type, umx_topology_distance *distances,
                       size_t *num_p)
{
    size_t   start, num = 0;
    unsigned most;

    if (object >= topology->num_objects) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    start = start_of(topology, object);
    most  = farthest(topology, start);
    for (size_t i = 0; i < topology->num_objects; i++) {
        unsigned edges;

        if (i == object || topology->objects[i].type != type) {
            continue;
        }
        edges = topology->objects[start].depth -
                topology->objects[common_ancestor(topology, start, i)].depth;
        distances[num++] = (umx_topology_distance){
            .object = i, .distance = (edges < most) ? edges : most};
    }
    qsort_r(distances, num, sizeof(*distances), compare, (void *)topology);
    *num_p = num;
    return UMX_OK;
}
