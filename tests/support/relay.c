/* SPDX-License-Identifier: BSD-3-Clause */
/* relay.c: a link between two devices, with delay, rate, loss and silence.
 *
 *   relay FIRST SECOND
 *
 * Packets that arrive at one device leave by the other one. Lines of standard
 * input set what the link is like, in both directions; each is answered by "ok"
 * or by what is wrong with it:
 *
 *   delay US      the time that a packet travels, in microseconds
 *   rate KBIT     thousands of bits a second; 0 for no limit
 *   queue US      a packet that would wait longer than this for the rate is
 *                 dropped
 *   loss PPM      how many of a million packets are lost
 *   drop 0|1|2|3  nothing passes from FIRST (1), from SECOND (2), or at all
 *   count         answers "PACKETS BYTES LOST PACKETS BYTES LOST", from FIRST
 *                 and from SECOND
 *
 * The relay ends with its input. A packet may be one that the kernel has not
 * cut into segments yet: it keeps its virtio header, and the other side's
 * kernel treats it as if it had come so over the pair. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
    MAX_PACKET  = 1 << 18,
    SOCKET_SIZE = 128 << 20,
    MAX_QUEUED  = 256 << 20, /* bytes under way in one direction */
    BATCH       = 64,        /* packets that are read at a time */
    MILLION     = 1000000,
    FROM_FIRST  = 1, /* bits of the command "drop" */
    FROM_SECOND = 2
};

#define NEVER UINT64_MAX

typedef struct packet {
    struct packet *next;
    uint64_t       due_ns;
    size_t         length;
    unsigned char  bytes[];
} packet;

/* What travels from one device to the other. */
typedef struct direction {
    int      from;
    int      to;
    unsigned bit;   /* of the command "drop" */
    packet  *first; /* under way, in the order in which they have come */
    packet **last_p;
    size_t   queued;  /* their bytes */
    uint64_t free_ns; /* when the last one has been sent at the rate */
    uint64_t due_ns;  /* when the last one leaves */
    uint64_t packets;
    uint64_t bytes;
    uint64_t lost;
} direction;

/* What the link is like. */
static struct {
    uint64_t delay;
    uint64_t rate;
    uint64_t queue;
    uint64_t loss;
    uint64_t drop;
} settings = {.queue = 50000};

static const struct {
    const char *name;
    uint64_t   *value;
    uint64_t    max;
} commands[] = {
    {"delay", &settings.delay, 60000000},
    {"rate", &settings.rate, 1000000000},
    {"queue", &settings.queue, 60000000},
    {"loss", &settings.loss, MILLION},
    {"drop", &settings.drop, FROM_FIRST | FROM_SECOND},
};

static direction directions[2];

static void
fail(const char *what)
{
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int
open_device(const char *name)
{
    int one = 1, size = SOCKET_SIZE;
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct sockaddr_ll address = {.sll_family   = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL)};

    if (fd < 0) {
        fail("socket");
    }
    address.sll_ifindex = (int)if_nametoindex(name);
    if (address.sll_ifindex == 0) {
        fail(name);
    }
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) !=
            0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) != 0) {
        fail("setsockopt");
    }
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        fail(name);
    }
    return fd;
}

/* Compute when a packet that comes now leaves, or NEVER if it is lost. */
static uint64_t
due_of(direction *dir, size_t length, uint64_t now)
{
    uint64_t due = (dir->free_ns > now) ? dir->free_ns : now;

    if ((settings.drop & dir->bit) != 0 || dir->queued > MAX_QUEUED ||
        (uint64_t)(random() % MILLION) < settings.loss) {
        return NEVER;
    }
    if (settings.rate != 0) {
        if (due - now > settings.queue * 1000) {
            return NEVER;
        }
        due += length * 8 * MILLION / settings.rate;
        dir->free_ns = due;
    }
    due += settings.delay * 1000;
    if (due < dir->due_ns) { /* the delay has been made shorter */
        due = dir->due_ns;
    }
    dir->due_ns = due;
    return due;
}

/* Read packets of a device. */
static void
take(direction *dir)
{
    static unsigned char bytes[MAX_PACKET];

    for (int i = 0; i < BATCH; i++) {
        ssize_t  length = recv(dir->from, bytes, sizeof(bytes), 0);
        uint64_t due;
        packet  *taken;

        if (length <= 0) {
            return; /* nothing is there, or the device is down */
        }
        dir->packets++;
        dir->bytes += (uint64_t)length;
        due   = due_of(dir, (size_t)length, now_ns());
        taken = (due == NEVER) ? NULL : malloc(sizeof(*taken) + (size_t)length);
        if (taken == NULL) {
            dir->lost++;
            continue;
        }
        taken->next   = NULL;
        taken->due_ns = due;
        taken->length = (size_t)length;
        memcpy(taken->bytes, bytes, (size_t)length);
        dir->queued += taken->length;
        *dir->last_p = taken;
        dir->last_p  = &taken->next;
    }
}

/* Send what is due; return when the next packet is. */
static uint64_t
give(direction *dir)
{
    while (dir->first != NULL && dir->first->due_ns <= now_ns()) {
        packet *given = dir->first;

        /* A device that is down or full loses the packet, as links do. */
        if (send(dir->to, given->bytes, given->length, 0) < 0) {
            dir->lost++;
        }
        dir->first = given->next;
        if (dir->first == NULL) {
            dir->last_p = &dir->first;
        }
        dir->queued -= given->length;
        free(given);
    }
    return (dir->first == NULL) ? NEVER : dir->first->due_ns;
}

static void
print_counts(void)
{
    for (int i = 0; i < 2; i++) {
        printf("%llu %llu %llu%s", (unsigned long long)directions[i].packets,
               (unsigned long long)directions[i].bytes,
               (unsigned long long)directions[i].lost, (i == 0) ? " " : "\n");
    }
}

/* Do what a line says. */
static void
obey(const char *line)
{
    char               name[16];
    unsigned long long value = 0;
    int                found = sscanf(line, "%15s %llu", name, &value);

    if (found == 1 && strcmp(name, "count") == 0) {
        print_counts();
        return;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (found == 2 && strcmp(name, commands[i].name) == 0 &&
            value <= commands[i].max) {
            *commands[i].value = value;
            printf("ok\n");
            return;
        }
    }
    printf("relay: \"%s\" is not a command\n", line);
}

/* Read lines of standard input; return false at its end. */
static bool
read_commands(void)
{
    static char   text[256];
    static size_t length;
    ssize_t got = read(STDIN_FILENO, text + length, sizeof(text) - 1 - length);
    char   *end;

    if (got <= 0) {
        return false;
    }
    length += (size_t)got;
    text[length] = '\0';
    while ((end = strchr(text, '\n')) != NULL) {
        *end = '\0';
        obey(text);
        length -= (size_t)(end + 1 - text);
        memmove(text, end + 1, length + 1);
    }
    fflush(stdout);
    return length < sizeof(text) - 1; /* no command is that long */
}

/* Wait until a packet or a line comes, or until a packet is due. */
static void
wait_for(struct pollfd fds[3], uint64_t due)
{
    uint64_t        now  = now_ns();
    uint64_t        rest = (due > now) ? due - now : 0;
    struct timespec limit;

    limit.tv_sec  = (time_t)(rest / 1000000000);
    limit.tv_nsec = (long)(rest % 1000000000);
    if (ppoll(fds, 3, (due == NEVER) ? NULL : &limit, NULL) < 0 &&
        errno != EINTR) {
        fail("ppoll");
    }
}

int
main(int argc, char **argv)
{
    struct pollfd fds[3] = {[2] = {.fd = STDIN_FILENO, .events = POLLIN}};
    int           from[2];

    if (argc != 3) {
        fprintf(stderr, "usage: relay FIRST SECOND\n");
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        from[i] = open_device(argv[1 + i]);
        fds[i]  = (struct pollfd){.fd = from[i], .events = POLLIN};
    }
    for (int i = 0; i < 2; i++) {
        directions[i] = (direction){.from = from[i],
                                    .to   = from[1 - i],
                                    .bit  = (i == 0) ? FROM_FIRST : FROM_SECOND,
                                    .last_p = &directions[i].first};
    }
    for (;;) {
        uint64_t due = NEVER;

        for (int i = 0; i < 2; i++) {
            uint64_t next = give(&directions[i]);

            due = (next < due) ? next : due;
        }
        wait_for(fds, due);
        if (fds[2].revents != 0 && !read_commands()) {
            return 0;
        }
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents != 0) {
                take(&directions[i]);
            }
        }
    }
}
