/* SPDX-License-Identifier: BSD-3-Clause */
/* tree.c: see tree.h. */
#include "topology/tree.h"

#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

enum {
    FIRST_OBJECTS = 64,
    /* The encoding of an object: parent u32, kind u8, type u8, domain u32, bus,
     * device, function u8, class, vendor, device u16, name, has_cpus u8. Its
     * CPUs follow, if it has some. */
    OBJECT_BYTES = 4 + 1 + 1 + 4 + 3 + 3 * 2 + UMX_TOPOLOGY_NAME_MAX + 1,
    NO_PARENT    = -1
};

/* ---- life ----------------------------------------------------------------
 */

umx_topology *
umi_tree_new(void)
{
    return calloc(1, sizeof(umx_topology));
}

void
umi_tree_free(umx_topology *tree)
{
    if (tree == NULL) {
        return;
    }
    for (size_t i = 0; i < tree->num_objects; i++) {
        free(tree->cpus[i]);
    }
    free(tree->cpus);
    free(tree->objects);
    free(tree);
}

/* ---- adding --------------------------------------------------------------
 */

static bool
is_valid_machine(const umx_topology_object *object, const umi_cpus *cpus)
{
    return object->parent == UMX_TOPOLOGY_NO_PARENT &&
           object->kind == UMX_TOPOLOGY_CPUS && cpus != NULL;
}

static bool
is_valid(const umx_topology *tree, const umx_topology_object *object,
         const umi_cpus *cpus)
{
    bool is_placed = (tree->num_objects == 0) ?
                         is_valid_machine(object, cpus) :
                         object->parent < tree->num_objects;

    return is_placed && object->kind <= UMX_TOPOLOGY_OS_DEVICE &&
           object->type <= UMX_DEVICE_TYPE_CUDA &&
           memchr(object->name, '\0', sizeof(object->name)) != NULL;
}

static umx_status
grow(umx_topology *tree)
{
    size_t               max = (tree->max_objects == 0) ? FIRST_OBJECTS :
                                                          2 * tree->max_objects;
    umx_topology_object *objects;
    umi_cpus           **cpus;

    if (tree->num_objects < tree->max_objects) {
        return UMX_OK;
    }
    if (tree->num_objects == UMI_TREE_OBJECTS_MAX) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    objects = realloc(tree->objects, max * sizeof(*objects));
    if (objects == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    tree->objects = objects;
    cpus          = realloc(tree->cpus, max * sizeof(*cpus));
    if (cpus == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    tree->cpus        = cpus;
    tree->max_objects = max;
    return UMX_OK;
}

umx_status
umi_tree_add(umx_topology *tree, const umx_topology_object *object,
             const umi_cpus *cpus)
{
    size_t     number  = tree->num_objects;
    bool       is_root = (number == 0);
    umi_cpus  *copy    = NULL;
    unsigned   depth;
    umx_status status;

    if (!is_valid(tree, object, cpus)) {
        return UMX_ERR_INVALID_PARAM;
    }
    depth = is_root ? 0 : tree->objects[object->parent].depth + 1;
    if (depth > UMI_TREE_DEPTH_MAX) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    status = grow(tree);
    if (status != UMX_OK) {
        return status;
    }
    if (cpus != NULL) {
        copy = malloc(sizeof(*copy));
        if (copy == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        *copy = *cpus;
    }
    tree->objects[number]       = *object;
    tree->objects[number].depth = depth;
    tree->cpus[number]          = copy;
    tree->num_objects++;
    return UMX_OK;
}

/* ---- encoding ------------------------------------------------------------
 */

static void
write_object(umi_writer *w, const umx_topology_object *object,
             const umi_cpus *cpus)
{
    umi_write_u32(w, (object->parent == UMX_TOPOLOGY_NO_PARENT) ?
                         (uint32_t)NO_PARENT :
                         (uint32_t)object->parent);
    umi_write_u8(w, (uint8_t)object->kind);
    umi_write_u8(w, (uint8_t)object->type);
    umi_write_u32(w, object->pci.domain);
    umi_write_u8(w, object->pci.bus);
    umi_write_u8(w, object->pci.device);
    umi_write_u8(w, object->pci.function);
    umi_write_u16(w, object->class_id);
    umi_write_u16(w, object->vendor_id);
    umi_write_u16(w, object->device_id);
    umi_write_bytes(w, object->name, sizeof(object->name));
    umi_write_u8(w, cpus != NULL);
    if (cpus != NULL) {
        umi_write_bytes(w, cpus, sizeof(*cpus));
    }
}

umx_status
umi_tree_pack(const umx_topology *tree, void **data_p, size_t *len_p)
{
    size_t     len = 0;
    void      *data;
    umi_writer w;

    for (size_t i = 0; i < tree->num_objects; i++) {
        len += OBJECT_BYTES;
        len += (tree->cpus[i] != NULL) ? sizeof(umi_cpus) : 0;
    }
    data = malloc(len);
    if (data == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_writer_init(&w, data, len);
    for (size_t i = 0; i < tree->num_objects; i++) {
        write_object(&w, &tree->objects[i], tree->cpus[i]);
    }
    *data_p = data;
    *len_p  = len;
    return UMX_OK;
}

/* ---- decoding ------------------------------------------------------------
 */

static void
read_object(umi_reader *r, umx_topology_object *object)
{
    uint32_t       parent = umi_read_u32(r);
    const uint8_t *name;

    memset(object, 0, sizeof(*object));
    object->parent = (parent == (uint32_t)NO_PARENT) ? UMX_TOPOLOGY_NO_PARENT :
                                                       parent;
    object->kind   = (umx_topology_kind)umi_read_u8(r);
    object->type   = (umx_device_type)umi_read_u8(r);
    object->pci.domain   = umi_read_u32(r);
    object->pci.bus      = umi_read_u8(r);
    object->pci.device   = umi_read_u8(r);
    object->pci.function = umi_read_u8(r);
    object->class_id     = umi_read_u16(r);
    object->vendor_id    = umi_read_u16(r);
    object->device_id    = umi_read_u16(r);
    name                 = umi_read_bytes(r, sizeof(object->name));
    if (name != NULL) {
        memcpy(object->name, name, sizeof(object->name));
    }
}

static umx_status
unpack_object(umi_reader *r, umx_topology *tree)
{
    umx_topology_object object;
    umi_cpus            cpus;
    const uint8_t      *words = NULL;

    read_object(r, &object);
    if (umi_read_u8(r) != 0) {
        words = umi_read_bytes(r, sizeof(cpus));
        if (words != NULL) {
            memcpy(&cpus, words, sizeof(cpus));
        }
    }
    return r->is_bad ?
               UMX_ERR_PROTOCOL :
               umi_tree_add(tree, &object, (words == NULL) ? NULL : &cpus);
}

umx_status
umi_tree_unpack(const void *data, size_t len, umx_topology **tree_p)
{
    umx_topology *tree   = umi_tree_new();
    umx_status    status = UMX_OK;
    umi_reader    r;

    if (tree == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_reader_init(&r, data, len);
    while (status == UMX_OK && r.pos != r.end) {
        status = unpack_object(&r, tree);
    }
    if (status == UMX_OK && tree->num_objects == 0) {
        status = UMX_ERR_PROTOCOL; /* no tree is without the machine */
    }
    if (status != UMX_OK) {
        umi_tree_free(tree);
        return status;
    }
    *tree_p = tree;
    return UMX_OK;
}
