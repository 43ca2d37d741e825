/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* A packed worker address, after src/ucp/wireup/address.c of UCX:
 *
 *   version 1: header u8 (version 0 | flags << 4)
 *   version 2: header u8 (version 1 | release << 4), flags u8
 *   uuid u64 | client id u64, if flagged | name, if flagged: length u8, bytes
 *   devices, of which the last is marked:
 *     memory domain u8 (EMPTY: no transports follow)
 *     length of the device's address and flags u8 | paths u8, if flagged |
 *     system device u8, if flagged | address
 *     transports, of which the last is marked:
 *       checksum of the name u16 | attributes, 16 bytes, of version 2 8 |
 *       length of the interface's address and flags u8 | address
 *
 * In version 2 a number that fills its bits goes on in a byte of its own. */
/* clang-format on */
#include "codec/ucx_address.h"

#include <math.h>
#include <string.h>
#include <sys/socket.h>

#include "util/bytes.h"

enum {
    VERSION_MASK = 0x0f,
    FLAG_NAME    = 1u << 0,
    FLAG_UUID    = 1u << 1,
    FLAG_CLIENT  = 1u << 2,
    FLAG_AM_ONLY = 1u << 3,
    FLAGS_KNOWN  = FLAG_NAME | FLAG_UUID | FLAG_CLIENT | FLAG_AM_ONLY,

    NO_DEVICE         = 0xff,
    LAST              = 0x80,
    DOMAIN_EMPTY      = 0x80,
    DOMAIN_MASK       = 0x7f,
    DEVICE_HAS_PATHS  = 0x40,
    DEVICE_HAS_SYS    = 0x20,
    DEVICE_LENGTH     = 0x1f,
    TRANSPORT_HAS_EP  = 0x40,
    TRANSPORT_LENGTH  = 0x3f,
    V2_TAKES_MESSAGES = 0x06, /* at once, or by a thread */
    MIN_SEGMENT       = 8,    /* of 64 bytes */

    MAX_ENTRIES = 128 /* UCP_MAX_RESOURCES */
};

/* A transport, as far as it is known: how long its addresses are at least. */
typedef struct transport {
    const char *name;
    bool        is_local;
    uint8_t     min_device;
    uint8_t     min_iface;
} transport;

static const transport transports[] = {
    {"tcp", false, 2 + 4, 2}, {"self", true, 0, 8},     {"posix", true, 8, 8},
    {"sysv", true, 8, 8},     {"xpmem", true, 8, 8},    {"cma", true, 8, 4},
    {"knem", true, 8, 0},     {"cuda_ipc", true, 8, 4},
};

typedef struct decoder {
    umi_reader       r;
    umi_ucx_address *address;
    const uint8_t   *device;
    uint8_t          device_len;
    const char      *why;
    const uint8_t   *device_mark; /* the byte that says if it is the last */
    umi_ucx_piece_fn fn;          /* or NULL */
    void            *arg;
} decoder;

static void
tell_piece(const decoder *d, umi_ucx_piece *piece, const uint8_t *head,
           const uint8_t *end)
{
    if (d->fn != NULL && !d->r.is_bad) {
        piece->head     = head;
        piece->head_len = (size_t)(end - head);
        d->fn(piece, d->arg);
    }
}

static bool
refuse(decoder *d, const char *why)
{
    if (d->why == NULL) {
        d->why = why;
    }
    return false;
}

/* A number in the low bits `mask` of `byte`. */
static uint8_t
read_extended(decoder *d, uint8_t byte, uint8_t mask)
{
    if (d->address->version > 1 && (byte & mask) == mask) {
        return umi_read_u8(&d->r);
    }
    return byte & mask;
}

/* ---- transports ----------------------------------------------------------
 */

/* CRC-16/X-25, with which UCX names transports. */
static uint16_t
checksum(const char *name)
{
    uint16_t crc = UINT16_MAX;

    for (; *name != '\0'; name++) {
        crc ^= (uint8_t)*name;
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint16_t)((crc >> 1) ^ ((crc & 1) ? 0x8408 : 0));
        }
    }
    return (uint16_t)~crc;
}

static const transport *
find_transport(uint16_t sum)
{
    for (size_t i = 0; i < sizeof(transports) / sizeof(*transports); i++) {
        if (checksum(transports[i].name) == sum) {
            return &transports[i];
        }
    }
    return NULL;
}

/* A device of tcp has flags, an address family and an address of that family.
 * One of the loopback has UCX's number of the host instead of the address. */
static bool
check_tcp(decoder *d)
{
    bool   is_loopback = (d->device[0] & UMI_UCX_TCP_LOOPBACK) != 0;
    size_t size        = (d->device[1] == AF_INET6) ? 16 : 4;

    if ((d->device[1] != AF_INET && d->device[1] != AF_INET6) ||
        (d->device[0] & ~UMI_UCX_TCP_LOOPBACK) != 0 ||
        (!is_loopback && d->device_len != 2 + size) ||
        (is_loopback && d->device_len < 2 + sizeof(uint64_t))) {
        return refuse(d, "UCX's address has no tcp device of its form");
    }
    return true;
}

/* Any byte is one of its small floats. What takes messages says how long they
 * may be; UCX aborts where a key of memory does not fit. */
static bool
check_attributes_v2(decoder *d)
{
    uint16_t segment, flags;

    (void)umi_read_u32(&d->r); /* overhead, bandwidth, latency, priority */
    segment = umi_read_u16(&d->r);
    flags   = umi_read_u16(&d->r);
    if (!d->r.is_bad && (flags & V2_TAKES_MESSAGES) && segment < MIN_SEGMENT) {
        return refuse(d, "UCX's address has a transport for no messages");
    }
    return true;
}

static bool
check_attributes(decoder *d)
{
    float values[3]; /* overhead, bandwidth, latency */

    if (d->address->version > 1) {
        return check_attributes_v2(d);
    }
    for (int i = 0; i < 3; i++) {
        uint32_t bits = umi_read_u32(&d->r);

        memcpy(&values[i], &bits, sizeof(bits));
        if (!isfinite(values[i]) || values[i] < 0) {
            return refuse(d, "UCX's address has a number that is none");
        }
    }
    (void)umi_read_u32(&d->r); /* priority, capabilities */
    if (!d->r.is_bad && values[1] == 0) {
        return refuse(d, "UCX's address has a number that is none");
    }
    return true;
}

static bool
note_segment(decoder *d, const transport *known, const uint8_t *iface,
             uint8_t len)
{
    umi_ucx_address *address  = d->address;
    umi_ucx_segment *segment  = &address->segments[address->num_segments];
    bool             is_posix = strcmp(known->name, "posix") == 0;

    if (!is_posix && strcmp(known->name, "sysv") != 0) {
        return true;
    }
    if (address->num_segments == UMI_UCX_SEGMENTS_MAX) {
        return refuse(d, "UCX's address has too many segments");
    }
    segment->is_posix = is_posix;
    memcpy(&segment->host, d->device, sizeof(segment->host));
    memcpy(&segment->id, iface, sizeof(segment->id));
    segment->pid_ns = 0;
    if (is_posix && (segment->id & UMI_UCX_POSIX_HAS_PID_NS)) {
        if (len < sizeof(segment->id) + sizeof(segment->pid_ns)) {
            return refuse(d, "UCX's address has a transport that is too short");
        }
        memcpy(&segment->pid_ns, iface + sizeof(segment->id),
               sizeof(segment->pid_ns));
    }
    address->num_segments++;
    return true;
}

static bool
is_of_network(const decoder *d, const transport *known)
{
    return !known->is_local && d->device_len > 0 &&
           (d->device[0] & UMI_UCX_TCP_LOOPBACK) == 0;
}

/* `*is_last_p`: of its device. */
static bool
read_transport(decoder *d, bool *is_last_p)
{
    const uint8_t   *head  = d->r.pos;
    uint16_t         sum   = umi_read_u16(&d->r);
    const transport *known = find_transport(sum);
    const uint8_t   *iface;
    umi_ucx_piece    piece = {.transport = (known != NULL) ? known->name : "",
                              .is_local  = known != NULL && known->is_local,
                              .name_sum  = sum};
    uint8_t          byte, len;

    if (!check_attributes(d)) {
        return false;
    }
    byte       = umi_read_u8(&d->r);
    len        = read_extended(d, byte, TRANSPORT_LENGTH);
    *is_last_p = (byte & LAST) != 0;
    iface      = umi_read_bytes(&d->r, len);
    if (iface == NULL) {
        return refuse(d, "UCX's address is cut");
    }
    piece.device     = d->device;
    piece.device_len = d->device_len;
    piece.iface      = iface;
    piece.iface_len  = len;
    tell_piece(d, &piece, head, iface);
    if (byte & TRANSPORT_HAS_EP) {
        return refuse(d, "UCX's address has an endpoint in it");
    }
    if (++d->address->num_transports > MAX_ENTRIES) {
        return refuse(d, "UCX's address has too many transports");
    }
    d->address->has_network |= known == NULL || is_of_network(d, known);
    if (known == NULL) {
        return true; /* UCX leaves out what it does not have itself */
    }
    if (len < known->min_iface || d->device_len < known->min_device) {
        return refuse(d, "UCX's address has a transport that is too short");
    }
    d->address->has_local = d->address->has_local || known->is_local;
    if (strcmp(known->name, "tcp") == 0) {
        return check_tcp(d);
    }
    return note_segment(d, known, iface, len);
}

/* ---- devices -------------------------------------------------------------
 */

static bool
read_device(decoder *d, bool *is_last_p)
{
    const uint8_t *head    = d->r.pos;
    uint8_t        domain  = umi_read_u8(&d->r);
    bool           is_last = (domain & DOMAIN_EMPTY) != 0;
    umi_ucx_piece  piece   = {0};
    uint8_t        byte;

    (void)read_extended(d, domain, DOMAIN_MASK);
    d->device_mark = d->r.pos;
    byte           = umi_read_u8(&d->r);
    d->device_len  = read_extended(d, byte, DEVICE_LENGTH);
    *is_last_p     = (byte & LAST) != 0;
    if ((byte & DEVICE_HAS_PATHS) && umi_read_u8(&d->r) == 0) {
        return refuse(d, "UCX's address has a device without paths");
    }
    if (byte & DEVICE_HAS_SYS) {
        (void)umi_read_u8(&d->r);
    }
    d->device = umi_read_bytes(&d->r, d->device_len);
    if (d->device == NULL || d->r.is_bad) {
        return refuse(d, "UCX's address is cut");
    }
    tell_piece(d, &piece, head, d->device);
    while (!is_last) {
        if (!read_transport(d, &is_last)) {
            return false;
        }
    }
    return true;
}

/* An address without a device has one byte instead. */
static bool
has_devices(const decoder *d)
{
    return d->r.end - d->r.pos != 1 || *d->r.pos != NO_DEVICE;
}

static bool
read_devices(decoder *d)
{
    bool is_last = false;

    if (!has_devices(d)) {
        (void)umi_read_u8(&d->r);
        return true;
    }
    for (int i = 0; !is_last; i++) {
        if (i == MAX_ENTRIES) {
            return refuse(d, "UCX's address has too many devices");
        }
        if (!read_device(d, &is_last)) {
            return false;
        }
    }
    return d->r.pos == d->r.end ||
           refuse(d, "UCX's address has bytes left over");
}

/* ---- the whole -----------------------------------------------------------
 */

static bool
read_header(decoder *d)
{
    const uint8_t *head   = d->r.pos;
    uint8_t        header = umi_read_u8(&d->r);
    uint8_t        flags  = header >> 4;
    umi_ucx_piece  piece  = {0};

    d->address->version = (header & VERSION_MASK) + 1u;
    if (d->address->version > 2) {
        return true;
    }
    if (d->address->version == 2) {
        flags = umi_read_u8(&d->r);
    }
    if ((flags & ~FLAGS_KNOWN) != 0 || !(flags & FLAG_UUID)) {
        return refuse(d, "UCX's address has other flags than a worker's");
    }
    tell_piece(d, &piece, head, d->r.pos);
    d->address->uuid = umi_read_u64(&d->r);
    if (flags & FLAG_CLIENT) {
        (void)umi_read_u64(&d->r);
    }
    if (flags & FLAG_NAME) {
        (void)umi_read_bytes(&d->r, umi_read_u8(&d->r));
    }
    return !d->r.is_bad || refuse(d, "UCX's address is cut");
}

bool
umi_ucx_address_decode(umi_ucx_address *address, const void *data, size_t len,
                       const char **why_p)
{
    decoder d = {.address = address};
    bool    is_good;

    memset(address, 0, sizeof(*address));
    umi_reader_init(&d.r, data, len);
    is_good = read_header(&d) && (address->version > 2 || read_devices(&d));
    if (!is_good) {
        *why_p = d.why;
    }
    return is_good;
}

void
umi_ucx_address_walk(const void *data, size_t len, umi_ucx_piece_fn fn,
                     void *arg)
{
    umi_ucx_address address = {0};
    decoder         d       = {.address = &address, .fn = fn, .arg = arg};

    umi_reader_init(&d.r, data, len);
    (void)(read_header(&d) && address.version <= 2 && read_devices(&d));
}

/* ---- without some devices ------------------------------------------------
 */

typedef struct filter {
    umi_ucx_keep_fn keep;
    void           *arg;
    bool            has_asked; /* of this device */
    bool            is_kept;
} filter;

static void
ask(const umi_ucx_piece *piece, void *arg)
{
    filter *f = arg;

    if (piece->transport != NULL && !f->has_asked) {
        f->has_asked = true;
        f->is_kept   = f->keep(piece, f->arg);
    }
}

size_t
umi_ucx_address_filter(const void *data, size_t len, umi_ucx_keep_fn keep,
                       void *arg, void *out)
{
    umi_ucx_address address = {0};
    filter          f       = {.keep = keep, .arg = arg};
    decoder         d       = {.address = &address, .fn = ask, .arg = &f};
    uint8_t        *to      = out;
    uint8_t        *mark    = NULL; /* of the last device in `out` */
    bool            is_last = false;
    size_t          size;

    umi_reader_init(&d.r, data, len);
    if (!read_header(&d) || address.version > 2 || !has_devices(&d)) {
        return 0;
    }
    size = (size_t)(d.r.pos - (const uint8_t *)data);
    memmove(to, data, size);
    to += size;
    while (!is_last) {
        const uint8_t *device = d.r.pos;

        f.has_asked = false;
        f.is_kept   = true; /* without transports: where a key of memory is */
        if (!read_device(&d, &is_last)) {
            return 0;
        }
        if (f.is_kept) {
            size = (size_t)(d.r.pos - device);
            memmove(to, device, size);
            mark = to + (d.device_mark - device);
            *mark &= (uint8_t)~LAST;
            to += size;
        }
    }
    if (mark == NULL) {
        return 0;
    }
    *mark |= LAST;
    return (size_t)(to - (uint8_t *)out);
}
