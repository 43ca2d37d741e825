/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/address.h"

#include "util/bytes.h"
#include "util/hash.h"

enum {
    VERSION       = 1,
    FIXED_SIZE    = 8 + UMI_WHERE_ID_SIZE + 8 + 2,
    CHECKSUM_SIZE = 8,
    LENGTH_OFFSET = 6
};

_Static_assert(FIXED_SIZE + UMI_ADDRESS_HOSTS_MAX * 17 + CHECKSUM_SIZE <=
                   UMX_ADDRESS_MAX,
               "room for every host");

static size_t
host_size(const umi_host_address *host)
{
    return host->is_ipv6 ? 16 : 4;
}

size_t
umi_address_encode(const umi_address *address, uint8_t *data)
{
    size_t     len = FIXED_SIZE + CHECKSUM_SIZE;
    umi_writer writer;

    for (unsigned i = 0; i < address->count; i++) {
        len += 1 + host_size(&address->hosts[i]);
    }
    umi_writer_init(&writer, data, len);
    umi_write_u32(&writer, UMI_ADDRESS_MAGIC);
    umi_write_u8(&writer, VERSION);
    umi_write_u8(&writer, (uint8_t)address->count);
    umi_write_u16(&writer, (uint16_t)len);
    umi_write_bytes(&writer, address->worker_id, UMI_WHERE_ID_SIZE);
    umi_write_u64(&writer, address->network_id);
    umi_write_u16(&writer, address->port);
    for (unsigned i = 0; i < address->count; i++) {
        const umi_host_address *host = &address->hosts[i];

        umi_write_u8(&writer, host->is_ipv6 ? 6 : 4);
        umi_write_bytes(&writer, host->bytes, host_size(host));
    }
    umi_write_u64(&writer, umi_siphash(data, len - CHECKSUM_SIZE));
    return len;
}

static bool
is_zero(const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool
read_host(umi_reader *reader, umi_host_address *host)
{
    uint8_t        family = umi_read_u8(reader);
    const uint8_t *bytes;

    memset(host, 0, sizeof(*host));
    host->is_ipv6 = (family == 6);
    bytes         = umi_read_bytes(reader, host_size(host));
    if (bytes == NULL || (family != 4 && family != 6)) {
        return false;
    }
    memcpy(host->bytes, bytes, host_size(host));
    host->is_loopback = host->is_ipv6 ? is_zero(bytes, 15) && bytes[15] == 1 :
                                        bytes[0] == 127;
    return true;
}

/* Length of the address, by its own words; 0: it is none. */
static size_t
check_frame(const uint8_t *data, size_t len, const char **why_p)
{
    umi_reader reader;
    uint32_t   magic;
    uint8_t    version;
    uint16_t   said;
    uint64_t   checksum;

    umi_reader_init(&reader, data, len);
    magic   = umi_read_u32(&reader);
    version = umi_read_u8(&reader);
    (void)umi_read_u8(&reader);
    said = umi_read_u16(&reader);
    if (magic != UMI_ADDRESS_MAGIC) {
        *why_p = "it does not begin as one";
    } else if (reader.is_bad || said > len) {
        *why_p = "it is cut off";
    } else if (version != VERSION) {
        *why_p = "it is of another version";
    } else if (said < FIXED_SIZE + CHECKSUM_SIZE) {
        *why_p = "its length is wrong";
    } else {
        memcpy(&checksum, data + said - CHECKSUM_SIZE, CHECKSUM_SIZE);
        if (checksum == umi_siphash(data, said - CHECKSUM_SIZE)) {
            return said;
        }
        *why_p = "its checksum is wrong";
    }
    return 0;
}

static bool
read_body(umi_address *address, const uint8_t *data, size_t len)
{
    umi_reader     reader;
    const uint8_t *id;

    umi_reader_init(&reader, data, len - CHECKSUM_SIZE);
    (void)umi_read_bytes(&reader, LENGTH_OFFSET - 1);
    address->count = umi_read_u8(&reader);
    (void)umi_read_u16(&reader);
    id = umi_read_bytes(&reader, UMI_WHERE_ID_SIZE);
    memcpy(address->worker_id, id, UMI_WHERE_ID_SIZE);
    address->network_id = umi_read_u64(&reader);
    address->port       = umi_read_u16(&reader);
    if (address->count > UMI_ADDRESS_HOSTS_MAX || address->port == 0) {
        return false;
    }
    for (unsigned i = 0; i < address->count; i++) {
        if (!read_host(&reader, &address->hosts[i])) {
            return false;
        }
    }
    return reader.pos == reader.end;
}

bool
umi_address_decode(umi_address *address, const void *data, size_t len,
                   size_t *len_p, const char **why_p)
{
    size_t said = check_frame(data, len, why_p);

    if (said == 0) {
        return false;
    }
    if (!is_zero((const uint8_t *)data + said, len - said)) {
        *why_p = "something follows it";
        return false;
    }
    if (!read_body(address, data, said)) {
        *why_p = "its contents are wrong";
        return false;
    }
    *len_p = said;
    return true;
}

umx_status
umx_address_check(const void *data, size_t len, size_t *len_p,
                  const char **why_p)
{
    umi_address address;

    return umi_address_decode(&address, data, len, len_p, why_p) ?
               UMX_OK :
               UMX_ERR_INVALID_ADDR;
}
