/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_hwloc.c: see fake_hwloc.h. */
#include "fake_hwloc.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_OBJECTS = 1024,
    PACKAGE     = 1,
    NUM_TYPES   = 20,
    PCI_BYTES   = 24, /* of both layouts */
    LAYOUT_BUS  = 0x34
};

struct umi_hwloc_bitmap {
    int first;
    int last;
};

/* The attributes of a bridge, which begin with those of a PCI device. */
typedef struct attributes {
    uint8_t pci[PCI_BYTES];
    int     upstream_type; /* 0: a host bridge */
} attributes;

typedef struct graph {
    umi_hwloc_object objects[MAX_OBJECTS];
    attributes       attributes[MAX_OBJECTS];
    umi_hwloc_bitmap cpus[MAX_OBJECTS];
    int              num_objects;
} graph;

struct umi_hwloc_topology {
    bool is_for_layout;
    bool has_xml;
};

fake_hwloc_state fake_hwloc;

static graph tests_graph, layout_graph;

static volatile int *volatile wrong_address = (volatile int *)(uintptr_t)16;

/* ---- objects -------------------------------------------------------------
 */

static umi_hwloc_object *
add(graph *g, umi_hwloc_object *parent, int type)
{
    int               n      = g->num_objects++;
    umi_hwloc_object *object = &g->objects[n];

    if (n == MAX_OBJECTS) {
        abort();
    }
    memset(object, 0, sizeof(*object));
    memset(&g->attributes[n], 0, sizeof(g->attributes[n]));
    object->type       = type;
    object->parent     = parent;
    object->attributes = &g->attributes[n];
    return object;
}

umi_hwloc_object *
fake_hwloc_add(umi_hwloc_object *parent, int type)
{
    return add(&tests_graph, parent, type);
}

umi_hwloc_object *
fake_hwloc_machine(void)
{
    return &tests_graph.objects[0];
}

umi_hwloc_object *
fake_hwloc_add_host_bridge(umi_hwloc_object *parent)
{
    return fake_hwloc_add(parent, UMI_HWLOC_BRIDGE);
}

static void
put(uint8_t *at, uint32_t value, size_t size)
{
    memcpy(at, &value, size);
}

/* Write the attributes in the layout of this build of hwloc. */
static void
write_pci(attributes *to, umx_pci_address address, uint16_t class_id,
          uint16_t vendor_id, uint16_t device_id)
{
    size_t domain = fake_hwloc.is_wide ? 4 : 2;
    size_t ids    = domain + 4 + (fake_hwloc.is_strange ? 2 : 0);

    put(to->pci, address.domain, domain);
    put(to->pci + domain, address.bus, 1);
    put(to->pci + domain + 1, address.device, 1);
    put(to->pci + domain + 2, address.function, 1);
    put(to->pci + ids, class_id, 2);
    put(to->pci + ids + 2, vendor_id, 2);
    put(to->pci + ids + 4, device_id, 2);
    to->upstream_type = 1;
}

umi_hwloc_object *
fake_hwloc_add_pci(umi_hwloc_object *parent, int type, umx_pci_address address,
                   uint16_t class_id, uint16_t vendor_id)
{
    umi_hwloc_object *object = fake_hwloc_add(parent, type);

    write_pci(&tests_graph.attributes[object - tests_graph.objects], address,
              class_id, vendor_id, 1);
    return object;
}

umi_hwloc_object *
fake_hwloc_add_os(umi_hwloc_object *parent, int os_type, const char *name)
{
    umi_hwloc_object *object = fake_hwloc_add(parent, UMI_HWLOC_OS_DEVICE);

    memcpy(&tests_graph.attributes[object - tests_graph.objects], &os_type,
           sizeof(os_type));
    object->name = (char *)(uintptr_t)name;
    return object;
}

static void
set_cpus(graph *g, umi_hwloc_object *object, int first, int last)
{
    umi_hwloc_bitmap *cpus = &g->cpus[object - g->objects];

    cpus->first  = first;
    cpus->last   = (last == -1) ? INT_MAX - 1 : last;
    object->cpus = cpus;
}

void
fake_hwloc_set_cpus(umi_hwloc_object *object, int first, int last)
{
    set_cpus(&tests_graph, object, first, last);
}

void
fake_hwloc_reset(void)
{
    fake_hwloc              = (fake_hwloc_state){.api_version = 0x00020b00};
    tests_graph.num_objects = 0;
    (void)fake_hwloc_add(NULL, 0);
    fake_hwloc_set_cpus(fake_hwloc_machine(), 0, 1);
}

/* What libumx's XML for the layout describes. */
static void
build_layout(void)
{
    umx_pci_address   address = {0x12, LAYOUT_BUS, 0x15, 6};
    umi_hwloc_object *object;

    layout_graph.num_objects = 0;
    object                   = add(&layout_graph, NULL, 0);
    set_cpus(&layout_graph, object, 0, 0);
    object = add(&layout_graph, object, UMI_HWLOC_BRIDGE);
    object = add(&layout_graph, object, UMI_HWLOC_PCI_DEVICE);
    write_pci(&layout_graph.attributes[2], address, 0x0302, 0x10de, 0x1db1);
}

/* ---- hwloc's functions -----------------------------------------------------
 */

static unsigned
api_version(void)
{
    return fake_hwloc.api_version;
}

static int
init(umi_hwloc_topology **topology_p)
{
    *topology_p = calloc(1, sizeof(**topology_p));
    fake_hwloc.num_open++;
    return 0;
}

static void
destroy(umi_hwloc_topology *topology)
{
    free(topology);
    fake_hwloc.num_open--;
}

static int
set_io_filter(umi_hwloc_topology *topology, int filter)
{
    (void)topology;
    return (filter == 3) ? 0 : -1;
}

static int
set_xml(umi_hwloc_topology *topology, const char *xml, int size)
{
    topology->has_xml       = true;
    topology->is_for_layout = strstr(xml, "0012:34:15.6") != NULL;
    if (xml[size - 1] != '\0') {
        abort();
    }
    if (!topology->is_for_layout) {
        fake_hwloc.num_reads++;
    }
    return (fake_hwloc.fault == FAKE_HWLOC_REFUSES &&
            !topology->is_for_layout) ?
               -1 :
               0;
}

static int
load(umi_hwloc_topology *topology)
{
    if (topology->is_for_layout) {
        build_layout();
        return 0;
    }
    switch (fake_hwloc.fault) {
    case FAKE_HWLOC_FAILS:
        return -1;
    case FAKE_HWLOC_CRASHES:
        return *wrong_address;
    case FAKE_HWLOC_ABORTS:
        abort();
    case FAKE_HWLOC_HANGS:
        for (;;) {
            (void)pause();
        }
    default:
        return 0;
    }
}

/* Find the object of a depth that has a number, and count them. */
static const umi_hwloc_object *
search(const umi_hwloc_topology *topology, int depth, int number, int *count_p)
{
    const graph *g = topology->is_for_layout ? &layout_graph : &tests_graph;
    const umi_hwloc_object *found = NULL;

    *count_p = 0;
    for (int i = 0; i < g->num_objects; i++) {
        int type = g->objects[i].type;
        int own  = (type < UMI_HWLOC_BRIDGE) ? 0 : UMI_HWLOC_BRIDGE - 4 - type;
        int wanted = (depth == 0) ? i == 0 : own == depth;

        if (wanted && (*count_p)++ == number) {
            found = &g->objects[i];
        }
    }
    return found;
}

static int
num_at(umi_hwloc_topology *topology, int depth)
{
    int count;

    (void)search(topology, depth, -1, &count);
    return count;
}

static const umi_hwloc_object *
get_at(umi_hwloc_topology *topology, int depth, unsigned number)
{
    int count;

    return search(topology, depth, (int)number, &count);
}

static const char *
type_string(int type)
{
    return (type == 0) ? "Machine" : (type == PACKAGE) ? "Package" : NULL;
}

static int
next_cpu(const umi_hwloc_bitmap *bitmap, int previous)
{
    int next = (previous + 1 < bitmap->first) ? bitmap->first : previous + 1;

    return (next <= bitmap->last) ? next : -1;
}

/* ---- the dynamic linker ----------------------------------------------------
 */

void *__real_dlopen(const char *path, int flags);
void *__real_dlsym(void *handle, const char *symbol);
int   __real_dlclose(void *handle);
void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *handle, const char *symbol);
int   __wrap_dlclose(void *handle);

void *
__wrap_dlopen(const char *path, int flags)
{
    if (path == NULL || strcmp(path, "libhwloc.so.15") != 0) {
        return __real_dlopen(path, flags);
    }
    if (fake_hwloc.is_missing) {
        return __real_dlopen("libhwloc.so.missing", flags); /* for dlerror() */
    }
    fake_hwloc.num_handles++;
    return &fake_hwloc;
}

int
__wrap_dlclose(void *handle)
{
    if (handle != &fake_hwloc) {
        return __real_dlclose(handle);
    }
    fake_hwloc.num_handles--;
    return 0;
}

void *
__wrap_dlsym(void *handle, const char *symbol)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
#define ROW(type, name, symbol, args) {symbol, (void (*)(void))name},
        UMI_HWLOC_FUNCTIONS(ROW)
#undef ROW
    };

    if (handle != &fake_hwloc) {
        return __real_dlsym(handle, symbol);
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (strcmp(symbol, table[i].name) == 0 &&
            (fake_hwloc.no_symbol == NULL ||
             strcmp(symbol, fake_hwloc.no_symbol) != 0)) {
            return *(void **)(uintptr_t)&table[i].function;
        }
    }
    return NULL;
}
