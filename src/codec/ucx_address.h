/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_address.h: look at UCX's packed worker address before UCX does. UCX takes
 * one on trust: it has no length, and UCX reads where its bytes lead, or
 * aborts. The format is not part of UCX's interface; this is how 1.13 to 1.23
 * write it, versions 1 and 2. Bytes only. Thread: any. */
#ifndef UMI_CODEC_UCX_ADDRESS_H
#define UMI_CODEC_UCX_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Zeros that should follow an address which UCX is given. */
#define UMI_UCX_ADDRESS_PADDING 64

/* A flag in the id of a posix segment: the segment's namespace of processes
 * follows. */
#define UMI_UCX_POSIX_HAS_PID_NS (UINT64_C(1) << 60)

enum {
    UMI_UCX_SEGMENTS_MAX = 4,
    UMI_UCX_TCP_LOOPBACK =
        0x01 /* in the first byte of a tcp device's address */
};

/* Shared memory that UCX maps, if `host` is this one. */
typedef struct umi_ucx_segment {
    bool     is_posix; /* else sysv */
    uint64_t host;
    uint64_t id;
    uint32_t pid_ns; /* posix: of the pid in `id`; 0: the system's first */
} umi_ucx_segment;

typedef struct umi_ucx_address {
    unsigned version;     /* 1 or 2; larger: not known, and nothing else is */
    uint64_t uuid;        /* UCX's number of the worker */
    bool     has_local;   /* names transports that end at the host */
    bool     has_network; /* names others */
    unsigned num_transports;
    unsigned num_segments;
    umi_ucx_segment segments[UMI_UCX_SEGMENTS_MAX];
} umi_ucx_address;

/* A piece of an address. The pieces are what an address consists of, but for
 * UCX's number and name of the worker. */
typedef struct umi_ucx_piece {
    const uint8_t *head; /* all of it but for the addresses */
    size_t         head_len;
    const char    *transport; /* NULL: no transport; "": one not known here */
    bool           is_local;  /* of a transport that ends at the host */
    uint16_t       name_sum;  /* of a transport, like the next */
    const uint8_t *device;    /* its addresses */
    size_t         device_len;
    const uint8_t *iface;
    size_t         iface_len;
} umi_ucx_piece;

/* True for a network device of tcp, whose address has the family behind its
 * first byte, and then the bytes of an IP address. */
static inline bool
umi_ucx_is_tcp(const umi_ucx_piece *piece)
{
    return piece->transport != NULL && strcmp(piece->transport, "tcp") == 0 &&
           (piece->device[0] & UMI_UCX_TCP_LOOPBACK) == 0;
}

typedef void (*umi_ucx_piece_fn)(const umi_ucx_piece *piece, void *arg);

/* Call `fn` for each piece of an address that umi_ucx_address_decode() takes
 * for good, and whose version is known. */
void umi_ucx_address_walk(const void *data, size_t len, umi_ucx_piece_fn fn,
                          void *arg);

/* Tells whether the device of this transport, the first that it has, stays. */
typedef bool (*umi_ucx_keep_fn)(const umi_ucx_piece *piece, void *arg);

/* Copy an address to `out`, of `len` bytes, without the devices that `keep`
 * refuses. `out` may be `data`.
 *
 * @return the length of the copy; 0: the address is of a form that is not known
 *         here, or no device would be left
 */
size_t umi_ucx_address_filter(const void *data, size_t len,
                              umi_ucx_keep_fn keep, void *arg, void *out);

/* Decode UCX's address. False if `data` is none; `*why_p` then says why, in a
 * static string. */
bool umi_ucx_address_decode(umi_ucx_address *address, const void *data,
                            size_t len, const char **why_p);

#endif
