/* SPDX-License-Identifier: BSD-3-Clause */
/* info.c: what we tell a peer that asks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <umx/version.h>

#include "endpoint/endpoint.h"
#include "util/process.h"

/* Text that grows while it fits; `reserve` bytes are kept for its end. */
typedef struct text {
    char  *data;
    size_t len;
    size_t size;
    size_t reserve;
} text;

enum {
    MAX_NAME = 64
};

__attribute__((format(printf, 2, 3))) static bool
append(text *t, const char *format, ...)
{
    size_t  room = t->size - t->len;
    va_list args;
    int     len;

    va_start(args, format);
    len = vsnprintf(t->data + t->len, room, format, args);
    va_end(args);
    if (len < 0 || (size_t)len + t->reserve >= room) {
        t->data[t->len] = '\0';
        return false;
    }
    t->len += (size_t)len;
    return true;
}

/* Make a name fit for JSON: cut, and without what would need escaping. */
static const char *
plain(const char *name, char *buffer)
{
    size_t len = strnlen(name, MAX_NAME - 1);

    for (size_t i = 0; i < len; i++) {
        bool is_plain = name[i] >= ' ' && name[i] <= '~' && name[i] != '"' &&
                        name[i] != '\\';

        buffer[i] = is_plain ? name[i] : '?';
    }
    buffer[len] = '\0';
    return buffer;
}

static void
append_self(text *t)
{
    char     host[MAX_NAME] = "", name[MAX_NAME];
    unsigned major, minor, release;

    (void)!gethostname(host, sizeof(host) - 1);
    umx_ucx_version(&major, &minor, &release);
    append(t,
           "{\"umx\": \"%d.%d.%d\", \"ucx\": \"%u.%u.%u\", \"pid\": %ld, "
           "\"host\": \"%s\"",
           UMX_VERSION_MAJOR, UMX_VERSION_MINOR, UMX_VERSION_PATCH, major,
           minor, release, (long)getpid(), plain(host, name));
}

static void
append_memory(text *t)
{
    umi_memory memory;

    umi_process_memory(&memory);
    append(t,
           ", \"memory\": {\"rss\": %llu, \"peak\": %llu, \"total\": %llu, "
           "\"available\": %llu}",
           (unsigned long long)memory.rss, (unsigned long long)memory.peak,
           (unsigned long long)memory.total,
           (unsigned long long)memory.available);
}

static void
append_worker(text *t, const umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    append(t,
           ", \"worker\": {\"endpoints\": %llu, \"requests\": %llu, "
           "\"unexpected_messages\": %llu, \"unexpected_bytes\": %llu}",
           (unsigned long long)stats.endpoints,
           (unsigned long long)stats.requests_in_use,
           (unsigned long long)stats.unexpected_messages,
           (unsigned long long)stats.unexpected_bytes);
}

static void
append_transport(const char *transport, const char *device, void *arg)
{
    text *t = arg;
    char  names[2][MAX_NAME];
    bool  is_first = t->data[t->len - 1] == '[';

    (void)append(t, "%s[\"%s\", \"%s\"]", is_first ? "" : ", ",
                 plain(transport, names[0]), plain(device, names[1]));
}

size_t
umi_info_write(umx_ep *ep, char *data, size_t size)
{
    text t = {.data = data, .size = size, .reserve = sizeof("]}")};

    append_self(&t);
    append_memory(&t);
    append_worker(&t, umi_endpoint_worker(ep));
    append(&t, ", \"transports\": [");
    (void)!umx_ep_transports(ep, append_transport, &t); /* unknown: none */
    t.reserve = 0;
    append(&t, "]}");
    return t.len;
}
