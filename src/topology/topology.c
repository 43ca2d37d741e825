/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.c: making a topology, and finding objects in it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "topology/hwloc.h"
#include "topology/read.h"
#include "topology/tree.h"

static const uint64_t default_timeout_ns = UINT64_C(20) * 1000000000;

/* ---- life ----------------------------------------------------------------
 */

static umx_status
read_xml(const umi_hwloc *hwloc, const umx_topology_params *params,
         umx_topology **topology_p)
{
    bool       has_timeout = params->field_mask & UMX_TOPOLOGY_FIELD_TIMEOUT_NS;
    char      *xml;
    umx_status status;

    if (params->xml_len >= INT_MAX) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    xml = malloc(params->xml_len + 1); /* hwloc wants a '\0' at the end */
    if (xml == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (params->xml_len != 0) {
        memcpy(xml, params->xml, params->xml_len);
    }
    xml[params->xml_len] = '\0';
    status               = umi_topology_read_in_child(
                      hwloc, xml, (int)params->xml_len + 1,
        has_timeout ? params->timeout_ns : default_timeout_ns, topology_p);
    free(xml);
    return status;
}

umx_status
umx_topology_create(const umx_topology_params *params,
                    umx_topology             **topology_p)
{
    const umi_hwloc *hwloc = umi_hwloc_get();

    if (hwloc == NULL) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (params != NULL && (params->field_mask & UMX_TOPOLOGY_FIELD_XML)) {
        return read_xml(hwloc, params, topology_p);
    }
    return umi_topology_read(hwloc, NULL, 0, topology_p);
}

void
umx_topology_destroy(umx_topology *topology)
{
    umi_tree_free(topology);
}

/* ---- objects -------------------------------------------------------------
 */

size_t
umx_topology_num_objects(const umx_topology *topology)
{
    return topology->num_objects;
}

const umx_topology_object *
umx_topology_get_object(const umx_topology *topology, size_t object)
{
    return (object < topology->num_objects) ? &topology->objects[object] : NULL;
}

const uint64_t *
umx_topology_get_cpus(const umx_topology *topology, size_t object)
{
    if (object >= topology->num_objects) {
        return NULL;
    }
    while (topology->cpus[object] == NULL) {
        object = topology->objects[object].parent; /* the machine has CPUs */
    }
    return topology->cpus[object]->words;
}

umx_status
umx_topology_find_pci(const umx_topology    *topology,
                      const umx_pci_address *address, size_t *object_p)
{
    for (size_t i = 0; i < topology->num_objects; i++) {
        const umx_topology_object *object = &topology->objects[i];

        if (object->kind == UMX_TOPOLOGY_PCI_DEVICE &&
            umi_pci_number(&object->pci) == umi_pci_number(address)) {
            *object_p = i;
            return UMX_OK;
        }
    }
    return UMX_ERR_NO_ELEM;
}

umx_status
umx_topology_find_name(const umx_topology *topology, const char *name,
                       size_t *object_p)
{
    for (size_t i = 0; i < topology->num_objects; i++) {
        const umx_topology_object *object = &topology->objects[i];

        if (object->kind == UMX_TOPOLOGY_OS_DEVICE && name[0] != '\0' &&
            strcmp(object->name, name) == 0) {
            *object_p = i;
            return UMX_OK;
        }
    }
    return UMX_ERR_NO_ELEM;
}

/* Count the GPUs before `object`, by PCI address; equal ones by number. */
static size_t
count_gpus_before(const umx_topology *topology, size_t object)
{
    uint64_t address = umi_pci_number(&topology->objects[object].pci);
    size_t   count   = 0;

    for (size_t i = 0; i < topology->num_objects; i++) {
        uint64_t other = umi_pci_number(&topology->objects[i].pci);

        if (topology->objects[i].type == UMX_DEVICE_TYPE_CUDA &&
            (other < address || (other == address && i < object))) {
            count++;
        }
    }
    return count;
}

umx_status
umx_topology_find_gpu(const umx_topology *topology, size_t number,
                      size_t *object_p)
{
    for (size_t i = 0; i < topology->num_objects; i++) {
        if (topology->objects[i].type == UMX_DEVICE_TYPE_CUDA &&
            count_gpus_before(topology, i) == number) {
            *object_p = i;
            return UMX_OK;
        }
    }
    return UMX_ERR_NO_ELEM;
}
