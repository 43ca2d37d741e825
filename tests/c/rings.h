/* SPDX-License-Identifier: BSD-3-Clause */
/* rings.h: a world whose ranks have a proxy, a region and a ring each. */
#ifndef RINGS_H
#define RINGS_H

#include "world.h"

enum {
    RING_CAPACITY = 64,
    REGION_BYTES  = 1 << 20
};

typedef struct rings {
    world           *w;
    umx_proxy_params params;
    umx_proxy       *proxies[MAX_RANKS];
    umx_memh        *memhs[MAX_RANKS];
    unsigned char   *data[MAX_RANKS]; /* of the memories: rank + 1 in each byte
                                       of the first 64 KiB; then zeros */
    umx_proxy_ring   *rings[MAX_RANKS];
    umx_ring_producer producers[MAX_RANKS];
} rings;

/* A test that does not depend on the transport. */
#define RINGS_TEST(f)                            \
    {                                            \
#f, f, world_setup, world_teardown, NULL \
    }

/* Open all of it; with `is_mapped` peers map the memory. The other form has no
 * parameters, and maps. */
void open_rings_with(rings *r, world *w, int size, bool is_mapped);
void open_rings(rings *r, world *w, int size);
void close_rings(rings *r);

/* Write a command; its number. */
umx_ring_u64 push(rings *r, int rank, umx_ring_command command);

/* Have a quiet, and wait for its end. */
void post_quiet(rings *r, int rank, job *j, umx_request **req_p);
void expect_quiet(rings *r, int rank, umx_status status);

void expect_close(rings *r, int rank, uint64_t timeout_ns, umx_status status);

/* The ring has ended so, with that in its reason. */
void expect_error(rings *r, int rank, umx_status status, int failed,
                  const char *text);

/* Wait until it has ended. */
void wait_for_error(rings *r, int rank);

/* Add a region of these memories, one for each rank, to all proxies. */
void add_region(rings *r, umx_memh *const *memhs, umx_memh *const *sources,
                unsigned number);

#endif
