/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file topology.h  Where the devices of a host are, and how far from each
 * other.
 *
 * A topology is a tree of objects: at its root the machine, below it packages
 * and other groups of CPUs, below these the host bridges, PCI bridges and PCI
 * devices, and below PCI devices what the operating system calls them: "ib0",
 * "mlx5_0", "sda". Only objects with a device below them are in the tree.
 *
 * The library hwloc finds the objects. libumx is not linked with it, but opens
 * it at run time: see umx_hwloc_load(). Releases 2.x of hwloc work, whether
 * they are built with PCI domains of 16 or of 32 bits.
 *
 * **The distance** from one device to another is the number of edges from the
 * PCI device of the first one up to the nearest object that has both below it,
 * but at most up to the host bridge of the first one. So devices below one
 * switch have a small distance, and all devices below other host bridges have
 * the same one. The distance depends on the direction.
 */
#ifndef UMX_TOPOLOGY_H
#define UMX_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>
#include <umx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A topology, which does not change. */
typedef struct umx_topology umx_topology;

enum {
    UMX_TOPOLOGY_NAME_MAX  = 64,   /* bytes, with the '\0'; others are cut off */
    UMX_TOPOLOGY_CPUS_MAX  = 8192, /* CPUs with higher numbers are left out */
    UMX_TOPOLOGY_CPU_WORDS = UMX_TOPOLOGY_CPUS_MAX / 64
};

/** The parent of the machine. */
#define UMX_TOPOLOGY_NO_PARENT SIZE_MAX

typedef enum umx_topology_kind {
    UMX_TOPOLOGY_CPUS,        /* the machine, or a part of it with CPUs */
    UMX_TOPOLOGY_HOST_BRIDGE, /* from the CPUs to PCI */
    UMX_TOPOLOGY_BRIDGE,      /* a port of a switch, or any other bridge */
    UMX_TOPOLOGY_PCI_DEVICE,
    UMX_TOPOLOGY_OS_DEVICE
} umx_topology_kind;

/** What an object can be used for. */
typedef enum umx_device_type {
    UMX_DEVICE_TYPE_OTHER,
    UMX_DEVICE_TYPE_BLOCK,       /* an OS device: a disk */
    UMX_DEVICE_TYPE_NETWORK,     /* an OS device: a network interface */
    UMX_DEVICE_TYPE_OPENFABRICS, /* an OS device: of InfiniBand, or like it */
    UMX_DEVICE_TYPE_CUDA         /* a PCI device: a display device of NVIDIA's */
} umx_device_type;

typedef struct umx_pci_address {
    uint32_t domain;
    uint8_t  bus;
    uint8_t  device;
    uint8_t  function;
} umx_pci_address;

typedef struct umx_topology_object {
    size_t            parent; /* less than the number of the object itself */
    unsigned          depth;  /* edges up to the machine */
    umx_topology_kind kind;
    umx_device_type   type;
    umx_pci_address   pci;       /* of a bridge and of a PCI device; else 0 */
    uint16_t          class_id;  /* so are these three */
    uint16_t          vendor_id;
    uint16_t          device_id;
    char              name[UMX_TOPOLOGY_NAME_MAX]; /* "Package 0", "ib0"; of a
                                                    * bridge and of a PCI device
                                                    * empty */
} umx_topology_object;

/**
 * Open the library hwloc, which stays open. The calls below open it by
 * themselves if this one has not succeeded before.
 *
 * Thread: any.
 *
 * @param path       a file, or NULL: libhwloc.so.15, where the dynamic linker
 *                   finds it
 * @param[out] text  why it cannot be used, cut off at `size` bytes; it may be
 *                   NULL if `size` is 0
 * @return UMX_OK, also if one is open already; UMX_ERR_UNSUPPORTED (it cannot
 *         be opened, or it is no hwloc 2.x)
 */
UMX_API UMX_MUST_CHECK umx_status umx_hwloc_load(const char *path, char *text,
                                                 size_t size);

enum umx_topology_field {
    UMX_TOPOLOGY_FIELD_XML        = 1u << 0, /* absent: this host's topology */
    UMX_TOPOLOGY_FIELD_TIMEOUT_NS = 1u << 1  /* absent: 20 s */
};

typedef struct umx_topology_params {
    uint64_t    field_mask;
    const void *xml; /* as hwloc exports it, "lstopo host.xml" for example */
    size_t      xml_len;
    uint64_t    timeout_ns; /* longest time that reading `xml` may take */
} umx_topology_params;

/**
 * Make the topology of this host, or of the host that an XML describes.
 *
 * XML may come from anyone. The parser of hwloc crashes on some damaged inputs,
 * so a child process, which is made by fork(), reads the XML: if it crashes or
 * hangs this call fails.
 *
 * Ownership: the topology is the caller's, given back by
 *            umx_topology_destroy(). `params` is lent for the call.
 * Thread:    any; so are all calls of a topology.
 *
 * @param params  NULL: this host
 * @return UMX_OK; UMX_ERR_UNSUPPORTED (no hwloc); UMX_ERR_INVALID_PARAM (hwloc
 *         does not accept the XML, or crashes); UMX_ERR_TIMED_OUT;
 *         UMX_ERR_EXCEEDS_LIMIT (65536 objects, a depth of 256, 2 GiB of XML);
 *         UMX_ERR_IO_ERROR (hwloc fails on this host);
 *         UMX_ERR_NO_RESOURCE (no child process, or pipe);
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_topology_create(
    const umx_topology_params *params, umx_topology **topology_p);

/** Give it back; NULL is allowed. */
UMX_API void umx_topology_destroy(umx_topology *topology);

/** Count the objects. Object 0 is the machine. */
UMX_API size_t umx_topology_num_objects(const umx_topology *topology);

/** Give an object, which is the topology's; NULL if there is no such number. */
UMX_API const umx_topology_object *
umx_topology_get_object(const umx_topology *topology, size_t object);

/**
 * Find the PCI device, not a bridge, at an address.
 *
 * @return UMX_OK, UMX_ERR_NO_ELEM
 */
UMX_API UMX_MUST_CHECK umx_status
umx_topology_find_pci(const umx_topology *topology,
                      const umx_pci_address *address, size_t *object_p);

/**
 * Find the OS device of a name.
 *
 * @return UMX_OK, UMX_ERR_NO_ELEM
 */
UMX_API UMX_MUST_CHECK umx_status umx_topology_find_name(
    const umx_topology *topology, const char *name, size_t *object_p);

/**
 * Find the GPU that is the `number`-th, from 0, by PCI address. The CUDA runtime
 * counts in this order if the variable CUDA_DEVICE_ORDER of the environment is
 * PCI_BUS_ID, or all GPUs are alike, and CUDA_VISIBLE_DEVICES is not set.
 *
 * @return UMX_OK, UMX_ERR_NO_ELEM
 */
UMX_API UMX_MUST_CHECK umx_status umx_topology_find_gpu(
    const umx_topology *topology, size_t number, size_t *object_p);

typedef struct umx_topology_distance {
    size_t   object;
    unsigned distance; /* edges */
} umx_topology_distance;

/**
 * Give the distances from `object` to all others of a type, the least first;
 * equal ones by name, and those without a name by PCI address.
 *
 * @param object          a device; for an OS device its PCI device counts
 * @param[out] distances  room for umx_topology_num_objects()
 * @return UMX_OK, UMX_ERR_OUT_OF_RANGE (`object`)
 */
UMX_API UMX_MUST_CHECK umx_status umx_topology_distances(
    const umx_topology *topology, size_t object, umx_device_type type,
    umx_topology_distance *distances, size_t *num_p);

/**
 * Give the CPUs that are closest to `object`: those of the nearest object above
 * it that has CPUs, or its own. CPU n is bit n % 64 of word n / 64. The
 * UMX_TOPOLOGY_CPU_WORDS words are the topology's.
 *
 * @return NULL if there is no such number
 */
UMX_API const uint64_t *umx_topology_get_cpus(const umx_topology *topology,
                                              size_t object);

#ifdef __cplusplus
}
#endif
#endif
