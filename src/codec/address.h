/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* address.h: encode and decode worker addresses. Bytes only. Frozen in wire
 * version 1. Numbers are little-endian:
 *
 *   magic u32 | version u8 (1) | count u8 | length u16 (of all) |
 *   worker id 16 | network id u64 | port u16 | count x entry | checksum u64
 *   entry: family u8 (4 or 6) | 4 or 16 bytes
 *
 * The checksum is umi_siphash() of what is before it. A decoder refuses
 * everything else, but for zeros behind it: programs send addresses in fields
 * of a fixed size. */
/* clang-format on */
#ifndef UMI_CODEC_ADDRESS_H
#define UMI_CODEC_ADDRESS_H

#include <umx/address.h>

#include "codec/control.h"
#include "util/host.h"

#define UMI_ADDRESS_MAGIC 0x41584d55u /* "UMXA" */
#define UMI_ADDRESS_HOSTS_MAX 32

typedef struct umi_address {
    uint8_t          worker_id[UMI_WHERE_ID_SIZE];
    uint64_t         network_id; /* umi_host_network_id() */
    uint16_t         port;
    unsigned         count;
    umi_host_address hosts[UMI_ADDRESS_HOSTS_MAX];
} umi_address;

/* Write `address` to `data`, which holds UMX_ADDRESS_MAX bytes; their number.
 */
size_t umi_address_encode(const umi_address *address, uint8_t *data);

/* Decode an address. False if `data` is none; `*why_p` then says why, in a
 * static string. */
bool umi_address_decode(umi_address *address, const void *data, size_t len,
                        size_t *len_p, const char **why_p);

#endif
