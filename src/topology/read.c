/* SPDX-License-Identifier: BSD-3-Clause */
/* read.c: see read.h. An XML can say anything that hwloc does not check, so no
 * attribute is read that hwloc has not filled in for the type of the object. */
#include "topology/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/tree.h"

enum {
    VENDOR_NVIDIA = 0x10de,
    CLASS_DISPLAY = 0x03 /* the upper byte of the class */
};

/* What umi_topology_read() works on. The objects of the tree have the numbers
 * that `originals` has. */
typedef struct reader {
    const umi_hwloc         *hwloc;
    umi_hwloc_topology      *topology;
    umx_topology            *tree;
    const umi_hwloc_object **originals;
} reader;

/* ---- one object ----------------------------------------------------------
 */

static umx_device_type
os_device_type(const umi_hwloc_object *original)
{
    switch (*(const int *)original->attributes) {
    case UMI_HWLOC_OS_BLOCK:
        return UMX_DEVICE_TYPE_BLOCK;
    case UMI_HWLOC_OS_NETWORK:
        return UMX_DEVICE_TYPE_NETWORK;
    case UMI_HWLOC_OS_OPENFABRICS:
        return UMX_DEVICE_TYPE_OPENFABRICS;
    default:
        return UMX_DEVICE_TYPE_OTHER;
    }
}

static void
fill_pci(const umi_hwloc *hwloc, const umi_hwloc_object *original,
         umx_topology_object *object)
{
    umi_hwloc_pci pci;

    umi_hwloc_get_pci(hwloc, original, &pci);
    object->pci       = pci.address;
    object->class_id  = pci.class_id;
    object->vendor_id = pci.vendor_id;
    object->device_id = pci.device_id;
}

static void
fill_bridge(const umi_hwloc *hwloc, const umi_hwloc_object *original,
            umx_topology_object *object)
{
    object->kind = UMX_TOPOLOGY_BRIDGE;
    if (original->attributes == NULL) {
        return;
    }
    if (umi_hwloc_is_host_bridge(original)) {
        object->kind = UMX_TOPOLOGY_HOST_BRIDGE;
    } else {
        fill_pci(hwloc, original, object);
    }
}

static void
fill_pci_device(const umi_hwloc *hwloc, const umi_hwloc_object *original,
                umx_topology_object *object)
{
    object->kind = UMX_TOPOLOGY_PCI_DEVICE;
    if (original->attributes == NULL) {
        return;
    }
    fill_pci(hwloc, original, object);
    if (object->vendor_id == VENDOR_NVIDIA &&
        object->class_id >> 8 == CLASS_DISPLAY) {
        object->type = UMX_DEVICE_TYPE_CUDA;
    }
}

static void
fill_os_device(const umi_hwloc_object *original, umx_topology_object *object)
{
    object->kind = UMX_TOPOLOGY_OS_DEVICE;
    (void)snprintf(object->name, sizeof(object->name), "%s",
                   (original->name == NULL) ? "" : original->name);
    if (original->attributes != NULL && object->name[0] != '\0') {
        object->type = os_device_type(original);
    }
}

static void
fill_cpus(const umi_hwloc *hwloc, const umi_hwloc_object *original,
          umx_topology_object *object)
{
    const char *type = hwloc->type_string(original->type);

    object->kind = UMX_TOPOLOGY_CPUS;
    (void)snprintf(object->name, sizeof(object->name), "%s %u",
                   (type == NULL) ? "" : type, original->logical_index);
}

static void
fill(const umi_hwloc *hwloc, const umi_hwloc_object *original,
     umx_topology_object *object)
{
    switch (original->type) {
    case UMI_HWLOC_BRIDGE:
        fill_bridge(hwloc, original, object);
        break;
    case UMI_HWLOC_PCI_DEVICE:
        fill_pci_device(hwloc, original, object);
        break;
    case UMI_HWLOC_OS_DEVICE:
        fill_os_device(original, object);
        break;
    default:
        fill_cpus(hwloc, original, object);
        break;
    }
}

/* ---- the tree ------------------------------------------------------------
 */

static void
copy_cpus(const umi_hwloc *hwloc, const umi_hwloc_bitmap *bitmap,
          umi_cpus *cpus)
{
    memset(cpus, 0, sizeof(*cpus));
    if (bitmap == NULL) {
        return;
    }
    /* A bitmap of an XML may be infinite. */
    for (int cpu = hwloc->next_cpu(bitmap, -1);
         cpu >= 0 && cpu < UMX_TOPOLOGY_CPUS_MAX;
         cpu = hwloc->next_cpu(bitmap, cpu)) {
        cpus->words[cpu / 64] |= UINT64_C(1) << (cpu % 64);
    }
}

/* Find the number of an object that has been added, the latest first: a device
 * has been added soon after what is above it. */
static bool
find(const reader *r, const umi_hwloc_object *original, size_t *number_p)
{
    for (size_t i = r->tree->num_objects; i-- > 0;) {
        if (r->originals[i] == original) {
            *number_p = i;
            return true;
        }
    }
    return false;
}

static umx_status
add(reader *r, const umi_hwloc_object *original, size_t parent)
{
    umx_topology_object object = {.parent = parent};
    umi_cpus            cpus;
    umx_status          status;

    fill(r->hwloc, original, &object);
    if (object.kind == UMX_TOPOLOGY_CPUS) {
        copy_cpus(r->hwloc, original->cpus, &cpus);
    }
    status = umi_tree_add(r->tree, &object,
                          (object.kind == UMX_TOPOLOGY_CPUS) ? &cpus : NULL);
    if (status == UMX_OK) {
        r->originals[r->tree->num_objects - 1] = original;
    }
    return status;
}

/* Add what is above an object, from the machine down, and the object. */
static umx_status
add_with_parents(reader *r, const umi_hwloc_object *original)
{
    const umi_hwloc_object *missing[UMI_TREE_DEPTH_MAX + 1];
    size_t                  count = 0, number = UMX_TOPOLOGY_NO_PARENT;
    umx_status              status = UMX_OK;

    while (original != NULL && !find(r, original, &number)) {
        if (count == sizeof(missing) / sizeof(*missing)) {
            return UMX_ERR_EXCEEDS_LIMIT;
        }
        missing[count++] = original;
        original         = original->parent;
    }
    while (status == UMX_OK && count > 0) {
        status = add(r, missing[--count], number);
        number = r->tree->num_objects - 1;
    }
    return status;
}

static umx_status
add_all(reader *r)
{
    static const int depths[] = {UMI_HWLOC_DEPTH_BRIDGE,
                                 UMI_HWLOC_DEPTH_PCI_DEVICE,
                                 UMI_HWLOC_DEPTH_OS_DEVICE};

    const umi_hwloc_object *machine = r->hwloc->get_at(r->topology, 0, 0);
    umx_status              status = (machine == NULL) ? UMX_ERR_INVALID_PARAM :
                                                         add_with_parents(r, machine);

    for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++) {
        int count = r->hwloc->num_at(r->topology, depths[i]);

        for (int n = 0; status == UMX_OK && n < count; n++) {
            const umi_hwloc_object *original = r->hwloc->get_at(
                r->topology, depths[i], (unsigned)n);

            if (original != NULL) {
                status = add_with_parents(r, original);
            }
        }
    }
    return status;
}

umx_status
umi_topology_read(const umi_hwloc *hwloc, const char *xml, int size,
                  umx_topology **tree_p)
{
    reader     r      = {.hwloc = hwloc};
    umx_status status = UMX_ERR_NO_MEMORY;

    r.originals = calloc(UMI_TREE_OBJECTS_MAX, sizeof(*r.originals));
    if (r.originals == NULL) {
        return status;
    }
    r.tree = umi_tree_new();
    if (r.tree == NULL) {
        goto free_originals;
    }
    r.topology = umi_hwloc_topology_new(hwloc, xml, size);
    if (r.topology == NULL) {
        status = (xml == NULL) ? UMX_ERR_IO_ERROR : UMX_ERR_INVALID_PARAM;
        goto free_tree;
    }
    status = add_all(&r);
    hwloc->destroy(r.topology);
    if (status == UMX_OK) {
        *tree_p = r.tree;
        goto free_originals;
    }
free_tree:
    umi_tree_free(r.tree);
free_originals:
    free(r.originals);
    return status;
}
