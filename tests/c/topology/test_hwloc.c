/* SPDX-License-Identifier: BSD-3-Clause */
/* link: fake_hwloc wrap=dlopen wrap=dlsym wrap=dlclose child */
/* Which libraries are accepted, and both layouts of PCI addresses. Each in a
 * process of its own, which opens hwloc once. */
#include <umx/topology.h>

#include <string.h>
#include <sys/wait.h>

#include "child.h"
#include "fake_hwloc.h"

enum {
    WIDE_DOMAIN = 0x10000 /* one that does not fit into 16 bits */
};

/* ---- roles of the child -------------------------------------------------- */

/* Nothing works without hwloc; the text says why. */
static int
run_refused(const char *expected)
{
    char          text[256] = "";
    umx_topology *topology  = NULL;

    if (umx_hwloc_load(NULL, text, sizeof(text)) != UMX_ERR_UNSUPPORTED ||
        umx_hwloc_load(NULL, NULL, 0) != UMX_ERR_UNSUPPORTED ||
        umx_topology_create(NULL, &topology) != UMX_ERR_UNSUPPORTED) {
        return 1;
    }
    return (strstr(text, expected) != NULL && fake_hwloc.num_handles == 0 &&
            fake_hwloc.num_open == 0) ?
               0 :
               2;
}

static int
run_missing(const char *expected)
{
    fake_hwloc_reset();
    fake_hwloc.is_missing = true;
    return run_refused(expected);
}

static int
run_incomplete(const char *symbol)
{
    fake_hwloc_reset();
    fake_hwloc.no_symbol = symbol;
    return run_refused(symbol);
}

static int
run_release(const char *release)
{
    fake_hwloc_reset();
    fake_hwloc.api_version = (strcmp(release, "1") == 0) ? 0x00010b00 :
                                                           0x00030000;
    return run_refused("not of hwloc's releases 2.x");
}

static int
run_strange(const char *width)
{
    fake_hwloc_reset();
    fake_hwloc.is_strange = true;
    fake_hwloc.is_wide    = strcmp(width, "32") == 0;
    return run_refused("its ABI is not the one of hwloc 2.x");
}

/* The addresses of a bridge, a GPU and a NIC are read in the layout. */
static int
run_layout(const char *width)
{
    bool              is_wide = strcmp(width, "32") == 0;
    umx_pci_address   gpu     = {is_wide ? WIDE_DOMAIN : 0xabcd, 0x81, 0x1f, 7};
    umx_pci_address   nic     = {1, 2, 3, 4};
    umi_hwloc_object *host;
    const umx_topology_object *object;
    umx_topology              *topology = NULL;
    size_t                     number;

    fake_hwloc_reset();
    fake_hwloc.is_wide = is_wide;
    host               = fake_hwloc_add_host_bridge(fake_hwloc_machine());
    (void)fake_hwloc_add_pci(host, UMI_HWLOC_BRIDGE, gpu, 0x0604, 0x8086);
    (void)fake_hwloc_add_pci(host, UMI_HWLOC_PCI_DEVICE, gpu, 0x0302, 0x10de);
    (void)fake_hwloc_add_pci(host, UMI_HWLOC_PCI_DEVICE, nic, 0x0200, 0x15b3);
    if (umx_hwloc_load(NULL, NULL, 0) != UMX_OK ||
        umx_topology_create(NULL, &topology) != UMX_OK ||
        umx_topology_find_gpu(topology, 0, &number) != UMX_OK) {
        return 1;
    }
    object = umx_topology_get_object(topology, number);
    if (object->pci.domain != gpu.domain || object->pci.bus != gpu.bus ||
        object->pci.device != gpu.device ||
        object->pci.function != gpu.function || object->class_id != 0x0302 ||
        object->vendor_id != 0x10de || object->device_id != 1 ||
        umx_topology_get_object(topology, 1)->kind !=
            UMX_TOPOLOGY_HOST_BRIDGE ||
        umx_topology_get_object(topology, 2)->kind != UMX_TOPOLOGY_BRIDGE ||
        umx_topology_get_object(topology, 2)->class_id != 0x0604 ||
        umx_topology_find_pci(topology, &nic, &number) != UMX_OK) {
        return 2;
    }
    umx_topology_destroy(topology);
    return 0;
}

/* A failure is not the last word: the next library is tried. */
static int
run_next(const char *unused)
{
    char text[4] = "";

    (void)unused;
    fake_hwloc_reset();
    if (umx_hwloc_load("/no/such/file", text, sizeof(text)) !=
            UMX_ERR_UNSUPPORTED ||
        memchr(text, '\0', sizeof(text)) == NULL) {
        return 1;
    }
    return (umx_hwloc_load(NULL, text, sizeof(text)) == UMX_OK &&
            umx_hwloc_load("/no/such/file", text, sizeof(text)) == UMX_OK &&
            fake_hwloc.num_handles == 1) ?
               0 :
               2;
}

/* ---- tests --------------------------------------------------------------- */

static void
check(const char *role, const char *arg)
{
    child c      = child_start(role, arg);
    int   status = child_end(&c, 0);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void
test_a_missing_library_is_named(void **state)
{
    (void)state;
    check("missing", "libhwloc.so.missing: cannot open shared object file");
}

static void
test_a_library_without_a_function_is_refused(void **state)
{
    (void)state;
    check("incomplete", "hwloc_bitmap_next");
    check("incomplete", "hwloc_get_api_version");
}

static void
test_other_releases_are_refused(void **state)
{
    (void)state;
    check("release", "1");
    check("release", "3");
}

static void
test_an_unknown_abi_is_refused(void **state)
{
    (void)state;
    check("strange", "16");
    check("strange", "32");
}

static void
test_pci_domains_have_16_or_32_bits(void **state)
{
    (void)state;
    check("layout", "16");
    check("layout", "32");
}

static void
test_another_library_can_be_tried(void **state)
{
    (void)state;
    check("next", NULL);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {
        {"missing", run_missing}, {"incomplete", run_incomplete},
        {"release", run_release}, {"strange", run_strange},
        {"layout", run_layout},   {"next", run_next},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_library_is_named),
        cmocka_unit_test(test_a_library_without_a_function_is_refused),
        cmocka_unit_test(test_other_releases_are_refused),
        cmocka_unit_test(test_an_unknown_abi_is_refused),
        cmocka_unit_test(test_pci_domains_have_16_or_32_bits),
        cmocka_unit_test(test_another_library_can_be_tried),
    };

    child_role(argc, argv, entries, sizeof(entries) / sizeof(*entries));
    return UNIT_RUN(tests);
}
