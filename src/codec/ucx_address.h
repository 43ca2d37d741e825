/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_address.h: look at UCX's packed worker address before UCX does. UCX takes
 * one on trust: it has no length, and UCX reads where its bytes lead, or
 * aborts. The format is not part of UCX's interface; this is how 1.13 to 1.22
 * write it, versions 1 and 2. Bytes only. Thread: any. */
#ifndef UMI_CODEC_UCX_ADDRESS_H
#define UMI_CODEC_UCX_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeros that should follow an address which UCX is given. */
#define UMI_UCX_ADDRESS_PADDING 64

enum {
    UMI_UCX_SEGMENTS_MAX = 4
};

/* Shared memory that UCX maps, if `host` is this one. */
typedef struct umi_ucx_segment {
    bool     is_posix; /* else sysv */
    uint64_t host;
    uint64_t id;
    uint32_t pid_ns; /* posix: of the pid in `id`; 0: the system's first */
} umi_ucx_segment;

typedef struct umi_ucx_address {
    unsigned version;   /* 1 or 2; larger: not known, and nothing else is */
    uint64_t uuid;      /* UCX's number of the worker */
    bool     has_local; /* names transports that end at the host */
    unsigned num_transports;
    unsigned num_segments;
    umi_ucx_segment segments[UMI_UCX_SEGMENTS_MAX];
} umi_ucx_address;

/* Decode UCX's address. False if `data` is none; `*why_p` then says why, in a
 * static string. */
bool umi_ucx_address_decode(umi_ucx_address *address, const void *data,
                            size_t len, const char **why_p);

#endif
