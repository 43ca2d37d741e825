/* SPDX-License-Identifier: BSD-3-Clause */
/** @file version.h  Version of libumx and of what it speaks. */
#ifndef UMX_VERSION_H
#define UMX_VERSION_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMX_VERSION_MAJOR 0
#define UMX_VERSION_MINOR 1
#define UMX_VERSION_PATCH 0

/** Major version of the wire format; peers that differ refuse each other. */
#define UMX_WIRE_VERSION 4

/** Version of the loaded UCX. Thread: any. */
UMX_API void umx_ucx_version(unsigned *major_p, unsigned *minor_p,
                             unsigned *release_p);

#ifdef __cplusplus
}
#endif
#endif
