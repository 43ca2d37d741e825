/* SPDX-License-Identifier: BSD-3-Clause */
/* The encoding in which a child process gives a topology to its parent. */
#include "topology/tree.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

enum {
    /* Offsets in the encoding of an object; see tree.c. */
    AT_PARENT = 0,
    AT_KIND   = 4,
    AT_TYPE   = 5,
    AT_NAME   = 19,
    AT_CPUS   = AT_NAME + UMX_TOPOLOGY_NAME_MAX,
    HEAD_LEN  = AT_CPUS + 1
};

static const umx_topology_object machine = {.parent = UMX_TOPOLOGY_NO_PARENT,
                                            .name   = "Machine 0"};

static const umx_topology_object device = {
    .parent    = 0,
    .kind      = UMX_TOPOLOGY_PCI_DEVICE,
    .type      = UMX_DEVICE_TYPE_CUDA,
    .pci       = {0x12345678, 0xfe, 0x1f, 7},
    .class_id  = 0x0302,
    .vendor_id = 0x10de,
    .device_id = 0xffff,
};

static umi_cpus cpus;

/* A machine with CPUs and one device, encoded. */
static uint8_t *
pack(size_t *len_p)
{
    umx_topology *tree = umi_tree_new();
    void         *data = NULL;

    cpus.words[UMX_TOPOLOGY_CPU_WORDS - 1] = UINT64_MAX;
    assert_non_null(tree);
    assert_int_equal(umi_tree_add(tree, &machine, &cpus), UMX_OK);
    assert_int_equal(umi_tree_add(tree, &device, NULL), UMX_OK);
    assert_int_equal(umi_tree_pack(tree, &data, len_p), UMX_OK);
    assert_int_equal(*len_p, 2 * HEAD_LEN + sizeof(umi_cpus));
    umi_tree_free(tree);
    return data;
}

static void
test_a_tree_is_read_as_it_was_written(void **state)
{
    umx_topology *tree = NULL;
    size_t        len;
    uint8_t      *data = pack(&len);

    (void)state;
    assert_int_equal(umi_tree_unpack(data, len, &tree), UMX_OK);
    free(data);
    assert_int_equal(tree->num_objects, 2);
    assert_memory_equal(&tree->objects[0], &machine, sizeof(machine));
    assert_int_equal(tree->objects[1].depth, 1);
    assert_int_equal(tree->objects[1].pci.domain, 0x12345678);
    assert_int_equal(tree->objects[1].pci.function, 7);
    assert_int_equal(tree->objects[1].device_id, 0xffff);
    assert_memory_equal(tree->cpus[0], &cpus, sizeof(cpus));
    assert_null(tree->cpus[1]);
    umi_tree_free(tree);
}

static void
test_a_truncated_tree_is_refused(void **state)
{
    umx_topology *tree;
    size_t        len;
    uint8_t      *data  = pack(&len);
    size_t        first = HEAD_LEN + sizeof(umi_cpus); /* of the machine */

    (void)state;
    for (size_t shorter = 0; shorter < len; shorter++) {
        if (shorter == first) {
            assert_int_equal(umi_tree_unpack(data, shorter, &tree), UMX_OK);
            umi_tree_free(tree);
        } else {
            assert_int_equal(umi_tree_unpack(data, shorter, &tree),
                             UMX_ERR_PROTOCOL);
        }
    }
    free(data);
}

static void
test_wrong_values_are_refused(void **state)
{
    static const struct {
        size_t  object;
        size_t  at;
        uint8_t value;
    } cases[] = {
        /* The machine has no parent, is no device, and has CPUs. */
        {0, AT_PARENT, 0},
        {0, AT_KIND, UMX_TOPOLOGY_PCI_DEVICE},
        {0, AT_KIND, UMX_TOPOLOGY_OS_DEVICE},
        {0, AT_CPUS, 0},
        /* A parent is before its child. */
        {1, AT_PARENT, 1},
        {1, AT_PARENT, 2},
        {1, AT_PARENT + 3, 0x80},
        /* Kinds and types are known, and CPUs are as long as they should. */
        {1, AT_KIND, 5},
        {1, AT_KIND, 0xff},
        {1, AT_TYPE, 5},
        {1, AT_CPUS, 1},
    };

    umx_topology *tree;
    size_t        len;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint8_t *data   = pack(&len);
        size_t   offset = cases[i].object * (HEAD_LEN + sizeof(umi_cpus));

        data[offset + cases[i].at] = cases[i].value;
        assert_int_not_equal(umi_tree_unpack(data, len, &tree), UMX_OK);
        free(data);
    }
}

static void
test_a_name_without_an_end_is_refused(void **state)
{
    umx_topology *tree;
    size_t        len;
    uint8_t      *data = pack(&len);

    (void)state;
    memset(data + AT_NAME, 'x', UMX_TOPOLOGY_NAME_MAX);
    assert_int_equal(umi_tree_unpack(data, len, &tree), UMX_ERR_INVALID_PARAM);
    free(data);
}

static void
test_objects_are_limited_in_number(void **state)
{
    umx_topology *tree = umi_tree_new();

    (void)state;
    assert_non_null(tree);
    assert_int_equal(umi_tree_add(tree, &machine, &cpus), UMX_OK);
    for (int i = 1; i < UMI_TREE_OBJECTS_MAX; i++) {
        assert_int_equal(umi_tree_add(tree, &device, NULL), UMX_OK);
    }
    assert_int_equal(umi_tree_add(tree, &device, NULL), UMX_ERR_EXCEEDS_LIMIT);
    umi_tree_free(tree);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tree_is_read_as_it_was_written),
        cmocka_unit_test(test_a_truncated_tree_is_refused),
        cmocka_unit_test(test_wrong_values_are_refused),
        cmocka_unit_test(test_a_name_without_an_end_is_refused),
        cmocka_unit_test(test_objects_are_limited_in_number),
    };

    return UNIT_RUN(tests);
}
