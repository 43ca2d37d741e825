/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c: which devices there are, and what they say of themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

enum {
    NUM_PROCESSORS = 16, /* attributes */
    MAPS_HOST      = 19,
    PCI_BUS        = 33,
    NUM_ENGINES    = 40,
    IS_UNIFIED     = 41,
    MAJOR          = 75,
    HAS_MANAGED    = 83,
    SHARES_MANAGED = 89,
    SAME_POINTERS  = 91,
    WAITS_OF_MEM   = 92,
    REGISTERS_HOST = 99,
    HAS_POOLS      = 115
};

standin_settings standin_set;

/* ---- the environment -----------------------------------------------------
 */

static double
number_of(const char *name, double otherwise)
{
    const char *text = getenv(name);

    return (text == NULL) ? otherwise : atof(text);
}

static bool
is_set_to(const char *name, const char *value)
{
    const char *text = getenv(name);

    return text != NULL && strcmp(text, value) == 0;
}

static cu_uuid
uuid_of(int physical)
{
    cu_uuid uuid;

    memset(uuid.bytes, 0x51, sizeof(uuid.bytes));
    uuid.bytes[0] = (unsigned char)(physical + 1);
    return uuid;
}

/* The device that one item of CUDA_VISIBLE_DEVICES names, or -1. */
static int
read_device(const char *item, int num_devices)
{
    char *end;
    long  number;

    if (strncmp(item, "GPU-", 4) == 0) {
        number = strtol((char[]){item[4], item[5], '\0'}, &end, 16) - 1;
    } else {
        number = strtol(item, &end, 10);
        if (end == item || *end != '\0') {
            return -1;
        }
    }
    return (number >= 0 && number < num_devices) ? (int)number : -1;
}

/* What follows a device that does not exist is not visible. */
static void
read_visible(int num_devices)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char        items[256], *rest = items, *item;

    if (text == NULL) {
        standin_set.num_devices = num_devices;
        for (int i = 0; i < num_devices; i++) {
            standin_set.physical[i] = i;
        }
        return;
    }
    snprintf(items, sizeof(items), "%s", text);
    while ((item = strsep(&rest, ",")) != NULL &&
           standin_set.num_devices < STANDIN_MAX_DEVICES) {
        int device = read_device(item, num_devices);

        if (device < 0) {
            return;
        }
        standin_set.physical[standin_set.num_devices++] = device;
    }
}

__attribute__((constructor)) static void
load(void)
{
    double devices = number_of("STANDIN_DEVICES", STANDIN_DEVICES);

    standin_set.memory     = (size_t)number_of("STANDIN_MEMORY", 4294967296.0);
    standin_set.step_us    = number_of("STANDIN_STEP_US", 0);
    standin_set.gbs        = number_of("STANDIN_GBS", 0);
    standin_set.is_open    = is_set_to("STANDIN_OPEN", "1");
    standin_set.can_export = !is_set_to("STANDIN_IPC", "0");
    standin_set.can_import = getenv("STANDIN_IPC") == NULL ||
                             is_set_to("STANDIN_IPC", "1");
    standin_set.has_engine = is_set_to("STANDIN_ENGINE", "1");
    standin_set.has_peers  = !is_set_to("STANDIN_PEER", "0");
    read_visible(devices > STANDIN_MAX_DEVICES ? STANDIN_MAX_DEVICES :
                                                 (int)devices);
}

void
standin_set_speed(double step_us, double gbs)
{
    standin_acquire();
    standin_set.step_us = step_us;
    standin_set.gbs     = gbs;
    standin_release_lock();
}

void
standin_hold(bool is_on)
{
    standin_acquire();
    standin_set.is_held = is_on;
    standin_wake();
    standin_release_lock();
}

/* ---- the driver ----------------------------------------------------------
 */

bool
standin_is_device(int device)
{
    return device >= 0 && device < standin_set.num_devices;
}

int
cuInit(unsigned flags)
{
    (void)flags;
    ENTER(EARLY);
    if (standin.is_deviceless || standin_set.num_devices == 0) {
        LEAVE(NO_DEVICE);
    }
    standin_is_initialized = true;
    LEAVE(OK);
}

int
cuDriverGetVersion(int *version_p)
{
    ENTER(EARLY | TOLERANT);
    *version_p = 12090;
    LEAVE(OK);
}

int
cuDeviceGetCount(int *count_p)
{
    ENTER(TOLERANT);
    *count_p = standin_set.num_devices;
    LEAVE(OK);
}

int
cuDeviceGet(int *device_p, int ordinal)
{
    ENTER(TOLERANT);
    if (!standin_is_device(ordinal)) {
        LEAVE(INVALID_DEVICE);
    }
    *device_p = ordinal;
    LEAVE(OK);
}

int
cuDeviceGetName(char *name, int len, int device)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    snprintf(name, (size_t)len, "Stand-in %d", standin_set.physical[device]);
    LEAVE(OK);
}

static int
get_uuid(cu_uuid *uuid_p, int device)
{
    if (!standin_is_device(device)) {
        return INVALID_DEVICE;
    }
    *uuid_p = uuid_of(standin_set.physical[device]);
    return OK;
}

int
cuDeviceGetUuid(cu_uuid *uuid_p, int device)
{
    ENTER(TOLERANT);
    LEAVE(get_uuid(uuid_p, device));
}

int
cuDeviceGetUuid_v2(cu_uuid *uuid_p, int device)
{
    ENTER(TOLERANT);
    LEAVE(get_uuid(uuid_p, device));
}

int
cuDeviceTotalMem_v2(size_t *bytes_p, int device)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    *bytes_p = standin_set.memory;
    LEAVE(OK);
}

int
cuDeviceGetAttribute(int *value_p, int attribute, int device)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    switch (attribute) {
    case NUM_PROCESSORS:
        *value_p = 132;
        break;
    case PCI_BUS:
        *value_p = 1 + standin_set.physical[device];
        break;
    case NUM_ENGINES:
        *value_p = 2;
        break;
    case MAJOR:
        *value_p = 9;
        break;
    case MAPS_HOST:
    case IS_UNIFIED:
    case HAS_MANAGED:
    case SHARES_MANAGED:
    case SAME_POINTERS:
    case WAITS_OF_MEM:
    case REGISTERS_HOST:
    case HAS_POOLS:
        *value_p = 1;
        break;
    default:
        *value_p = 0; /* as other ways to share memory */
    }
    LEAVE(OK);
}

int
cuDeviceCanAccessPeer(int *can_p, int device, int peer)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device) || !standin_is_device(peer)) {
        LEAVE(INVALID_DEVICE);
    }
    *can_p = device != peer && standin_set.has_peers;
    LEAVE(OK);
}

int
cuDeviceGetPCIBusId(char *text, int len, int device)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    snprintf(text, (size_t)len, "0000:%02x:00.0",
             1 + standin_set.physical[device]);
    LEAVE(OK);
}
