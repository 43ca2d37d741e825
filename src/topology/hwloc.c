/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc.c: see hwloc.h.
 *
 * A PCI domain has 16 bits or, if hwloc was configured so, 32, and the numbers
 * behind it lie elsewhere then. No function of hwloc says which. So a topology
 * with one PCI device, whose numbers are known here, is loaded first: the
 * layout is the one in which these numbers are found. A library in which they
 * are not found has another ABI and is refused. */
#include "topology/hwloc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SONAME "libhwloc.so.15"

enum {
    API_MAJOR        = 2,
    FILTER_IMPORTANT = 3,
    UPSTREAM_HOST    = 0 /* a host bridge */
};

/* The attributes of a PCI device, and the first ones of a bridge. */
typedef struct narrow_pci {
    uint16_t domain;
    uint8_t  bus, device, function;
    uint16_t class_id, vendor_id, device_id, subsystem[2];
    uint8_t  revision;
    float    link_speed;
} narrow_pci;

typedef struct wide_pci {
    uint32_t domain;
    uint8_t  bus, device, function;
    uint16_t class_id, vendor_id, device_id, subsystem[2];
    uint8_t  revision;
    float    link_speed;
} wide_pci;

typedef struct bridge_attributes {
    union {
        narrow_pci narrow;
        wide_pci   wide;
    } pci;
    int upstream_type;
} bridge_attributes;

_Static_assert(sizeof(narrow_pci) == sizeof(wide_pci),
               "the attributes of a bridge behind its PCI device");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static umi_hwloc       loaded;    /* changed by the lock's owner only */
static bool            is_loaded; /* under the lock */

/* ---- topologies ----------------------------------------------------------
 */

umi_hwloc_topology *
umi_hwloc_topology_new(const umi_hwloc *hwloc, const char *xml, int size)
{
    umi_hwloc_topology *topology;

    if (hwloc->init(&topology) != 0) {
        return NULL;
    }
    if (hwloc->set_io_filter(topology, FILTER_IMPORTANT) != 0 ||
        (xml != NULL && hwloc->set_xml(topology, xml, size) != 0) ||
        hwloc->load(topology) != 0) {
        hwloc->destroy(topology);
        return NULL;
    }
    return topology;
}

static void
get_narrow(const narrow_pci *from, umi_hwloc_pci *pci)
{
    pci->address   = (umx_pci_address){from->domain, from->bus, from->device,
                                       from->function};
    pci->class_id  = from->class_id;
    pci->vendor_id = from->vendor_id;
    pci->device_id = from->device_id;
}

static void
get_wide(const wide_pci *from, umi_hwloc_pci *pci)
{
    pci->address   = (umx_pci_address){from->domain, from->bus, from->device,
                                       from->function};
    pci->class_id  = from->class_id;
    pci->vendor_id = from->vendor_id;
    pci->device_id = from->device_id;
}

void
umi_hwloc_get_pci(const umi_hwloc *hwloc, const umi_hwloc_object *object,
                  umi_hwloc_pci *pci)
{
    if (hwloc->has_wide_domains) {
        get_wide(object->attributes, pci);
    } else {
        get_narrow(object->attributes, pci);
    }
}

bool
umi_hwloc_is_host_bridge(const umi_hwloc_object *bridge)
{
    const bridge_attributes *attributes = bridge->attributes;

    return attributes->upstream_type == UPSTREAM_HOST;
}

/* ---- the ABI -------------------------------------------------------------
 */

#define CPU_0 "0x00000001"
#define SETS                                              \
    "cpuset=\"" CPU_0 "\" complete_cpuset=\"" CPU_0 "\" " \
    "nodeset=\"" CPU_0 "\" complete_nodeset=\"" CPU_0 "\""

/* A host with one CPU and one PCI device. */
static const char probe_xml[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\">\n"
    "  <object type=\"Machine\" os_index=\"0\" gp_index=\"1\" " SETS
    " allowed_cpuset=\"" CPU_0 "\" allowed_nodeset=\"" CPU_0 "\">\n"
    "    <object type=\"NUMANode\" os_index=\"0\" gp_index=\"2\" " SETS
    " local_memory=\"1048576\"/>\n"
    "    <object type=\"PU\" os_index=\"0\" gp_index=\"3\" " SETS "/>\n"
    "    <object type=\"Bridge\" gp_index=\"4\" bridge_type=\"0-1\" "
    "depth=\"0\" "
    "bridge_pci=\"0012:[00-7f]\">\n"
    "      <object type=\"PCIDev\" gp_index=\"5\" pci_busid=\"0012:34:15.6\" "
    "pci_type=\"0302 [10de:1db1] [0000:0000] a1\" pci_link_speed=\"1.0\"/>\n"
    "    </object>\n"
    "  </object>\n"
    "</topology>\n";

static bool
is_probes_device(const umi_hwloc *hwloc, const umi_hwloc_object *object)
{
    umi_hwloc_pci pci;

    umi_hwloc_get_pci(hwloc, object, &pci);
    return pci.address.domain == 0x12 && pci.address.bus == 0x34 &&
           pci.address.device == 0x15 && pci.address.function == 6 &&
           pci.class_id == 0x0302 && pci.vendor_id == 0x10de &&
           pci.device_id == 0x1db1;
}

/* True if the objects above the device are as the probe has them. */
static bool
is_probes_machine(const umi_hwloc *hwloc, const umi_hwloc_object *bridge)
{
    return bridge != NULL && bridge->type == UMI_HWLOC_BRIDGE &&
           bridge->attributes != NULL && umi_hwloc_is_host_bridge(bridge) &&
           bridge->parent != NULL && bridge->parent->parent == NULL &&
           bridge->parent->cpus != NULL &&
           hwloc->next_cpu(bridge->parent->cpus, -1) == 0 &&
           hwloc->next_cpu(bridge->parent->cpus, 0) == -1;
}

static bool
has_known_layout(umi_hwloc *hwloc, const umi_hwloc_object *device)
{
    if (device == NULL || device->type != UMI_HWLOC_PCI_DEVICE ||
        device->attributes == NULL ||
        !is_probes_machine(hwloc, device->parent)) {
        return false;
    }
    hwloc->has_wide_domains = true;
    if (!is_probes_device(hwloc, device)) {
        hwloc->has_wide_domains = false;
    }
    return is_probes_device(hwloc, device);
}

static bool
find_layout(umi_hwloc *hwloc)
{
    umi_hwloc_topology *topology = umi_hwloc_topology_new(
        hwloc, probe_xml, (int)sizeof(probe_xml));
    bool is_known;

    if (topology == NULL) {
        return false;
    }
    is_known = hwloc->num_at(topology, UMI_HWLOC_DEPTH_PCI_DEVICE) == 1 &&
               has_known_layout(
                   hwloc,
                   hwloc->get_at(topology, UMI_HWLOC_DEPTH_PCI_DEVICE, 0));
    hwloc->destroy(topology);
    return is_known;
}

/* ---- opening -------------------------------------------------------------
 */

/* Look up the functions; returns NULL, or why the library is of no use. */
static const char *
look_up(void *handle, umi_hwloc *hwloc)
{
#define LOOK_UP(type, name, symbol, args)           \
    *(void **)&hwloc->name = dlsym(handle, symbol); \
    if (hwloc->name == NULL) {                      \
        return "it has no " symbol;                 \
    }
    UMI_HWLOC_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    if (hwloc->api_version() >> 16 != API_MAJOR) {
        return "it is not of hwloc's releases 2.x";
    }
    return find_layout(hwloc) ? NULL : "its ABI is not the one of hwloc 2.x";
}

/* With the lock. */
static umx_status
load(const char *path, char *text, size_t size)
{
    void       *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    umi_hwloc   hwloc;
    const char *fault;

    if (handle == NULL) {
        fault = dlerror();
        (void)snprintf(text, size, "%s", (fault == NULL) ? path : fault);
        return UMX_ERR_UNSUPPORTED;
    }
    fault = look_up(handle, &hwloc);
    if (fault != NULL) {
        (void)snprintf(text, size, "%s: %s", path, fault);
        (void)dlclose(handle);
        return UMX_ERR_UNSUPPORTED;
    }
    loaded    = hwloc;
    is_loaded = true;
    return UMX_OK;
}

umx_status
umx_hwloc_load(const char *path, char *text, size_t size)
{
    umx_status status = UMX_OK;

    pthread_mutex_lock(&lock);
    if (!is_loaded) {
        status = load((path == NULL) ? SONAME : path, text, size);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

const umi_hwloc *
umi_hwloc_get(void)
{
    return (umx_hwloc_load(NULL, NULL, 0) == UMX_OK) ? &loaded : NULL;
}
