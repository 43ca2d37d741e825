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

/** Version of the loaded libumx, such as "0.1.0". Thread: any. */
UMX_API const char *umx_version_string(void);

/**
 * Which headers the loaded libumx was compiled with: a hash of its headers,
 * 16 hexadecimal digits. Code that was compiled with headers of another hash may
 * see other structures than the library does. "unknown" if the library was built
 * by other means than setup.py and src/Makefile. Thread: any.
 */
UMX_API const char *umx_headers_id(void);

/** Version of the loaded UCX. Thread: any. */
UMX_API void umx_ucx_version(unsigned *major_p, unsigned *minor_p,
                             unsigned *release_p);

#ifdef __cplusplus
}
#endif
#endif
