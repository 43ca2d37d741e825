/* SPDX-License-Identifier: BSD-3-Clause */
/* link: fake_hwloc wrap=dlopen wrap=dlsym wrap=dlclose */
/* tests: topology/child topology/distance topology/read */
/* What libumx makes of hwloc's objects: finding, distances, CPUs; and XML that
 * hwloc cannot read. */
#include <umx/topology.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "fake_hwloc.h"
#include "unit.h"

enum {
    NVIDIA     = 0x10de,
    MELLANOX   = 0x15b3,
    GPU_CLASS  = 0x0302,
    NIC_CLASS  = 0x0207,
    PACKAGE    = 1,
    MAX_FOUND  = 2000,
    TIMEOUT_MS = 200
};

static umx_topology_distance found[MAX_FOUND];
static size_t                num_found;

static int
setup(void **state)
{
    (void)state;
    fake_hwloc_reset();
    return 0;
}

/* Check that each topology of hwloc's has been destroyed, and no child is left.
 */
static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(fake_hwloc.num_open, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    return 0;
}

static umx_topology *
read_host(void)
{
    umx_topology *topology = NULL;

    assert_int_equal(umx_topology_create(NULL, &topology), UMX_OK);
    return topology;
}

static umx_status
read_xml(umx_topology **topology_p)
{
    umx_topology_params params = {
        .field_mask = UMX_TOPOLOGY_FIELD_XML | UMX_TOPOLOGY_FIELD_TIMEOUT_NS,
        .xml        = "<topology/>",
        .xml_len    = strlen("<topology/>"),
        .timeout_ns = (fake_hwloc.fault == FAKE_HWLOC_HANGS) ?
                          TIMEOUT_MS * UINT64_C(1000000) :
                          UINT64_C(30) * 1000000000};

    return umx_topology_create(&params, topology_p);
}

static umi_hwloc_object *
add_bridge(umi_hwloc_object *parent, uint8_t bus)
{
    umx_pci_address address = {.bus = bus};

    return fake_hwloc_add_pci(parent, UMI_HWLOC_BRIDGE, address, 0x0604, 1);
}

static umi_hwloc_object *
add_device(umi_hwloc_object *parent, uint8_t bus, uint16_t class_id,
           uint16_t vendor_id)
{
    umx_pci_address address = {.bus = bus};

    return fake_hwloc_add_pci(parent, UMI_HWLOC_PCI_DEVICE, address, class_id,
                              vendor_id);
}

static void
add_nic(umi_hwloc_object *parent, uint8_t bus, const char *name,
        const char *fabric)
{
    umi_hwloc_object *nic = add_device(parent, bus, NIC_CLASS, MELLANOX);

    (void)fake_hwloc_add_os(nic, UMI_HWLOC_OS_NETWORK, name);
    (void)fake_hwloc_add_os(nic, UMI_HWLOC_OS_OPENFABRICS, fabric);
}

/* Two packages. In the first a switch with a GPU and a NIC, and a NIC beside
 * the switch; in the second a NIC and a GPU. */
static void
build_host(void)
{
    umi_hwloc_object *package, *host, *port;

    package = fake_hwloc_add(fake_hwloc_machine(), PACKAGE);
    fake_hwloc_set_cpus(package, 0, 0);
    host = fake_hwloc_add_host_bridge(package);
    port = add_bridge(add_bridge(host, 1), 2);
    (void)add_device(add_bridge(port, 3), 9, GPU_CLASS, NVIDIA);
    add_nic(add_bridge(port, 4), 10, "ib0", "mlx5_0");
    add_nic(host, 11, "ib9", "mlx5_9");
    package = fake_hwloc_add(fake_hwloc_machine(), PACKAGE);
    fake_hwloc_set_cpus(package, 1, 1);
    host = fake_hwloc_add_host_bridge(package);
    (void)add_device(host, 5, GPU_CLASS, NVIDIA);
    add_nic(host, 12, "ib5", "mlx5_5");
}

static void
list(const umx_topology *topology, size_t object, umx_device_type type)
{
    assert_int_equal(
        umx_topology_distances(topology, object, type, found, &num_found),
        UMX_OK);
}

static void
assert_found(const umx_topology *topology, size_t i, const char *name,
             unsigned distance)
{
    assert_true(i < num_found);
    assert_string_equal(
        umx_topology_get_object(topology, found[i].object)->name, name);
    assert_int_equal(found[i].distance, distance);
}

/* ---- distances ----------------------------------------------------------- */

static void
test_distances_end_at_the_host_bridge(void **state)
{
    umx_topology *topology;
    size_t        gpu;

    (void)state;
    build_host();
    topology = read_host();
    assert_int_equal(umx_topology_find_gpu(topology, 1, &gpu), UMX_OK);
    assert_int_equal(umx_topology_get_object(topology, gpu)->pci.bus, 9);
    list(topology, gpu, UMX_DEVICE_TYPE_NETWORK);
    assert_int_equal(num_found, 3);
    assert_found(topology, 0, "ib0", 2);
    assert_found(topology, 1, "ib5", 4);
    assert_found(topology, 2, "ib9", 4);
    list(topology, gpu, UMX_DEVICE_TYPE_OPENFABRICS);
    assert_found(topology, 0, "mlx5_0", 2);
    assert_found(topology, 1, "mlx5_5", 4);
    list(topology, gpu, UMX_DEVICE_TYPE_BLOCK);
    assert_int_equal(num_found, 0);
    umx_topology_destroy(topology);
}

static void
test_distances_have_a_direction(void **state)
{
    umx_topology *topology;
    size_t        far, near;

    (void)state;
    build_host();
    topology = read_host();
    assert_int_equal(umx_topology_find_gpu(topology, 0, &near), UMX_OK);
    assert_int_equal(umx_topology_find_gpu(topology, 1, &far), UMX_OK);
    list(topology, near, UMX_DEVICE_TYPE_CUDA);
    assert_int_equal(num_found, 1);
    assert_int_equal(found[0].object, far);
    assert_int_equal(found[0].distance, 1);
    list(topology, far, UMX_DEVICE_TYPE_CUDA);
    assert_int_equal(num_found, 1);
    assert_int_equal(found[0].object, near);
    assert_int_equal(found[0].distance, 4);
    umx_topology_destroy(topology);
}

static void
test_distances_of_an_os_device_are_those_of_its_pci_device(void **state)
{
    umx_topology *topology;
    size_t        nic;

    (void)state;
    build_host();
    topology = read_host();
    assert_int_equal(umx_topology_find_name(topology, "ib0", &nic), UMX_OK);
    list(topology, nic, UMX_DEVICE_TYPE_NETWORK);
    assert_int_equal(num_found, 2); /* it is not in its own list */
    assert_found(topology, 0, "ib5", 4);
    list(topology, nic, UMX_DEVICE_TYPE_OPENFABRICS);
    assert_found(topology, 0, "mlx5_0", 0);
    umx_topology_destroy(topology);
}

static void
test_without_a_bridge_distances_end_at_cpus(void **state)
{
    umi_hwloc_object *package;
    umx_topology     *topology;
    size_t            gpu;

    (void)state;
    package = fake_hwloc_add(fake_hwloc_machine(), PACKAGE);
    (void)add_device(package, 1, GPU_CLASS, NVIDIA);
    (void)fake_hwloc_add_os(fake_hwloc_machine(), UMI_HWLOC_OS_NETWORK, "eth0");
    topology = read_host();
    assert_int_equal(umx_topology_find_gpu(topology, 0, &gpu), UMX_OK);
    list(topology, gpu, UMX_DEVICE_TYPE_NETWORK);
    assert_int_equal(num_found, 1);
    assert_found(topology, 0, "eth0", 1);
    list(topology, 0, UMX_DEVICE_TYPE_NETWORK); /* from the machine */
    assert_found(topology, 0, "eth0", 0);
    umx_topology_destroy(topology);
}

static void
test_distances_of_no_object_are_refused(void **state)
{
    umx_topology *topology;

    (void)state;
    topology = read_host();
    assert_int_equal(umx_topology_distances(topology, 1, UMX_DEVICE_TYPE_BLOCK,
                                            found, &num_found),
                     UMX_ERR_OUT_OF_RANGE);
    umx_topology_destroy(topology);
}

/* ---- objects ------------------------------------------------------------- */

static void
test_gpus_are_counted_by_pci_address(void **state)
{
    umx_topology *topology;
    size_t        gpu;

    (void)state;
    (void)add_device(fake_hwloc_machine(), 7, GPU_CLASS, NVIDIA);
    (void)add_device(fake_hwloc_machine(), 3, 0x0300, NVIDIA);
    (void)add_device(fake_hwloc_machine(), 1, 0x0403, NVIDIA);
    (void)add_device(fake_hwloc_machine(), 2, GPU_CLASS, MELLANOX);
    topology = read_host();
    assert_int_equal(umx_topology_find_gpu(topology, 0, &gpu), UMX_OK);
    assert_int_equal(umx_topology_get_object(topology, gpu)->pci.bus, 3);
    assert_int_equal(umx_topology_find_gpu(topology, 1, &gpu), UMX_OK);
    assert_int_equal(umx_topology_get_object(topology, gpu)->pci.bus, 7);
    assert_int_equal(umx_topology_find_gpu(topology, 2, &gpu), UMX_ERR_NO_ELEM);
    umx_topology_destroy(topology);
}

static void
test_devices_are_found_by_address_and_name(void **state)
{
    umx_pci_address nic = {.bus = 10}, bridge = {.bus = 1};
    umx_topology   *topology;
    size_t          object;

    (void)state;
    build_host();
    topology = read_host();
    assert_int_equal(umx_topology_find_pci(topology, &nic, &object), UMX_OK);
    assert_int_equal(umx_topology_get_object(topology, object)->vendor_id,
                     MELLANOX);
    assert_int_equal(umx_topology_find_pci(topology, &bridge, &object),
                     UMX_ERR_NO_ELEM);
    assert_int_equal(umx_topology_find_name(topology, "mlx5_9", &object),
                     UMX_OK);
    assert_string_equal(umx_topology_get_object(topology, object)->name,
                        "mlx5_9");
    assert_int_equal(umx_topology_find_name(topology, "mlx5_1", &object),
                     UMX_ERR_NO_ELEM);
    assert_int_equal(umx_topology_find_name(topology, "", &object),
                     UMX_ERR_NO_ELEM);
    assert_null(
        umx_topology_get_object(topology, umx_topology_num_objects(topology)));
    umx_topology_destroy(topology);
}

static void
test_cpus_are_those_of_the_nearest_object_that_has_some(void **state)
{
    umx_topology *topology;
    size_t        nic;

    (void)state;
    build_host();
    topology = read_host();
    assert_int_equal(umx_topology_find_name(topology, "ib5", &nic), UMX_OK);
    assert_int_equal(umx_topology_get_cpus(topology, nic)[0], 2);
    assert_int_equal(umx_topology_get_cpus(topology, 0)[0], 3);
    assert_null(umx_topology_get_cpus(topology, 1000));
    umx_topology_destroy(topology);
}

static void
test_cpus_without_an_end_are_cut_off(void **state)
{
    umx_topology *topology;

    (void)state;
    fake_hwloc_set_cpus(fake_hwloc_machine(), 1, -1);
    topology = read_host();
    assert_int_equal(umx_topology_get_cpus(topology, 0)[0], UINT64_MAX - 1);
    assert_int_equal(
        umx_topology_get_cpus(topology, 0)[UMX_TOPOLOGY_CPU_WORDS - 1],
        UINT64_MAX);
    umx_topology_destroy(topology);
}

static void
test_missing_attributes_and_names_are_not_read(void **state)
{
    umi_hwloc_object *host, *device, *nameless;
    umx_topology     *topology;
    size_t            object;

    (void)state;
    host               = fake_hwloc_add_host_bridge(fake_hwloc_machine());
    host->attributes   = NULL;
    device             = add_device(host, 1, GPU_CLASS, NVIDIA);
    device->attributes = NULL;
    nameless           = fake_hwloc_add_os(device, UMI_HWLOC_OS_NETWORK, NULL);
    fake_hwloc_add_os(device, UMI_HWLOC_OS_NETWORK, "eth0")->attributes = NULL;
    (void)nameless;
    fake_hwloc_machine()->cpus = NULL;
    topology                   = read_host();
    assert_int_equal(umx_topology_num_objects(topology), 5);
    assert_int_equal(umx_topology_find_gpu(topology, 0, &object),
                     UMX_ERR_NO_ELEM);
    list(topology, 2, UMX_DEVICE_TYPE_NETWORK);
    assert_int_equal(num_found, 0);
    assert_int_equal(umx_topology_get_cpus(topology, 0)[0], 0);
    umx_topology_destroy(topology);
}

static void
test_long_names_are_cut_off(void **state)
{
    char          name[UMX_TOPOLOGY_NAME_MAX + 2];
    umx_topology *topology;
    size_t        object;

    (void)state;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    (void)fake_hwloc_add_os(fake_hwloc_machine(), UMI_HWLOC_OS_BLOCK, name);
    topology                        = read_host();
    name[UMX_TOPOLOGY_NAME_MAX - 1] = '\0';
    assert_int_equal(umx_topology_find_name(topology, name, &object), UMX_OK);
    umx_topology_destroy(topology);
}

static void
test_a_tree_that_is_too_deep_is_refused(void **state)
{
    umi_hwloc_object *object   = fake_hwloc_machine();
    umx_topology     *topology = NULL;

    (void)state;
    for (int i = 0; i < 256; i++) {
        object = add_bridge(object, (uint8_t)i);
    }
    topology = read_host();
    assert_int_equal(umx_topology_get_object(
                         topology, umx_topology_num_objects(topology) - 1)
                         ->depth,
                     256);
    umx_topology_destroy(topology);
    (void)add_bridge(object, 0);
    assert_int_equal(umx_topology_create(NULL, &topology),
                     UMX_ERR_EXCEEDS_LIMIT);
}

static void
test_a_host_on_which_hwloc_fails_is_an_error(void **state)
{
    umx_topology *topology;

    (void)state;
    fake_hwloc.fault = FAKE_HWLOC_FAILS;
    assert_int_equal(umx_topology_create(NULL, &topology), UMX_ERR_IO_ERROR);
}

/* ---- XML ----------------------------------------------------------------- */

static void
test_an_xml_is_read_in_a_child(void **state)
{
    umx_topology *host, *topology = NULL;

    (void)state;
    build_host();
    host = read_host();
    assert_int_equal(read_xml(&topology), UMX_OK);
    assert_int_equal(fake_hwloc.num_reads, 0); /* in this process */
    assert_int_equal(umx_topology_num_objects(topology),
                     umx_topology_num_objects(host));
    for (size_t i = 0; i < umx_topology_num_objects(host); i++) {
        assert_memory_equal(umx_topology_get_object(topology, i),
                            umx_topology_get_object(host, i),
                            sizeof(umx_topology_object));
        assert_memory_equal(umx_topology_get_cpus(topology, i),
                            umx_topology_get_cpus(host, i),
                            UMX_TOPOLOGY_CPU_WORDS * sizeof(uint64_t));
    }
    umx_topology_destroy(host);
    umx_topology_destroy(topology);
}

/* More objects than a pipe has room for. */
static void
test_a_large_topology_comes_from_the_child(void **state)
{
    umx_topology *topology = NULL;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        umi_hwloc_object *package = fake_hwloc_add(fake_hwloc_machine(),
                                                   PACKAGE);

        fake_hwloc_set_cpus(package, i, i);
        i++;
        (void)fake_hwloc_add_os(package, UMI_HWLOC_OS_NETWORK, "eth0");
    }
    assert_int_equal(read_xml(&topology), UMX_OK);
    assert_int_equal(umx_topology_num_objects(topology), 1001);
    umx_topology_destroy(topology);
}

static void
test_an_xml_of_which_hwloc_dies_is_refused(void **state)
{
    static const fake_hwloc_fault faults[] = {
        FAKE_HWLOC_FAILS, FAKE_HWLOC_REFUSES, FAKE_HWLOC_CRASHES,
        FAKE_HWLOC_ABORTS};

    umx_topology *topology;

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        fake_hwloc.fault = faults[i];
        assert_int_equal(read_xml(&topology), UMX_ERR_INVALID_PARAM);
    }
}

static void
test_an_xml_that_takes_too_long_is_given_up(void **state)
{
    umx_topology *topology;

    (void)state;
    fake_hwloc.fault = FAKE_HWLOC_HANGS;
    assert_int_equal(read_xml(&topology), UMX_ERR_TIMED_OUT);
}

static void
test_an_empty_xml_and_a_long_one(void **state)
{
    umx_topology_params params = {
        .field_mask = UMX_TOPOLOGY_FIELD_XML, .xml = NULL, .xml_len = 0};
    umx_topology *topology;

    (void)state;
    assert_int_equal(umx_topology_create(&params, &topology), UMX_OK);
    umx_topology_destroy(topology); /* the fake accepts everything */
    params.xml_len = (size_t)INT32_MAX;
    assert_int_equal(umx_topology_create(&params, &topology),
                     UMX_ERR_EXCEEDS_LIMIT);
}

/* The mask of this thread is as it was, and the child has closed no descriptor
 * of this process. */
static void
test_the_process_is_as_before(void **state)
{
    int           next = open("/dev/null", O_RDONLY), after;
    sigset_t      none, mask;
    umx_topology *topology = NULL;

    (void)state;
    close(next);
    sigemptyset(&none);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &none, NULL), 0);
    assert_int_equal(read_xml(&topology), UMX_OK);
    umx_topology_destroy(topology);
    fake_hwloc.fault = FAKE_HWLOC_CRASHES;
    assert_int_equal(read_xml(&topology), UMX_ERR_INVALID_PARAM);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGINT), 0);
    after = open("/dev/null", O_RDONLY);
    assert_int_equal(after, next);
    close(after);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_distances_end_at_the_host_bridge),
        TEST(test_distances_have_a_direction),
        TEST(test_distances_of_an_os_device_are_those_of_its_pci_device),
        TEST(test_without_a_bridge_distances_end_at_cpus),
        TEST(test_distances_of_no_object_are_refused),
        TEST(test_gpus_are_counted_by_pci_address),
        TEST(test_devices_are_found_by_address_and_name),
        TEST(test_cpus_are_those_of_the_nearest_object_that_has_some),
        TEST(test_cpus_without_an_end_are_cut_off),
        TEST(test_missing_attributes_and_names_are_not_read),
        TEST(test_long_names_are_cut_off),
        TEST(test_a_tree_that_is_too_deep_is_refused),
        TEST(test_a_host_on_which_hwloc_fails_is_an_error),
        TEST(test_an_xml_is_read_in_a_child),
        TEST(test_a_large_topology_comes_from_the_child),
        TEST(test_an_xml_of_which_hwloc_dies_is_refused),
        TEST(test_an_xml_that_takes_too_long_is_given_up),
        TEST(test_an_empty_xml_and_a_long_one),
        TEST(test_the_process_is_as_before),
    };
#undef TEST

    return UNIT_RUN(tests);
}
