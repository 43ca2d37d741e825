/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/direct.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "host/fork.h"
#include "util/hash.h"
#include "util/list.h"

struct umi_direct {
    umi_node   node; /* loans */
    uint64_t   id;
    umx_buffer buf;
    bool       is_over; /* its lender has ended it, and */
    bool       is_read; /* its reader has it still */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static umi_list        loans;
static bool            has_begun;
static uint64_t        process; /* of `generation` */
static unsigned        generation;

/* The caller has locked. */
static void
begin(void)
{
    if (!has_begun) {
        has_begun = true;
        umi_list_init(&loans);
    }
    if (process == 0 || generation != umi_fork_generation()) {
        generation = umi_fork_generation();
        if (!umi_random_bytes(&process, sizeof(process))) {
            process = 0;
        }
    }
}

uint64_t
umi_direct_process(void)
{
    uint64_t number;

    pthread_mutex_lock(&lock);
    begin();
    number = process;
    pthread_mutex_unlock(&lock);
    return number;
}

/* ---- the lender's --------------------------------------------------------
 */

umi_direct *
umi_direct_lend(const umx_buffer *buf)
{
    umi_direct *direct = malloc(sizeof(*direct));

    if (direct == NULL) {
        return NULL;
    }
    *direct = (umi_direct){.buf = *buf};
    if (!umi_random_bytes(&direct->id, sizeof(direct->id))) {
        free(direct);
        return NULL;
    }
    umi_node_init(&direct->node);
    pthread_mutex_lock(&lock);
    begin();
    umi_list_append(&loans, &direct->node);
    pthread_mutex_unlock(&lock);
    return direct;
}

uint64_t
umi_direct_id(const umi_direct *direct)
{
    return direct->id;
}

void
umi_direct_end(umi_direct *direct)
{
    bool is_read;

    pthread_mutex_lock(&lock);
    umi_node_remove(&direct->node);
    direct->is_over = true;
    is_read         = direct->is_read;
    pthread_mutex_unlock(&lock);
    if (!is_read) {
        free(direct);
    }
}

/* ---- the reader's --------------------------------------------------------
 */

umi_direct *
umi_direct_take(uint64_t id, size_t len)
{
    umi_direct *found = NULL;

    pthread_mutex_lock(&lock);
    begin();
    UMI_LIST_FOREACH(node, &loans) {
        umi_direct *direct = umi_container_of(node, umi_direct, node);

        if (direct->id == id && direct->buf.len == len && !direct->is_read) {
            direct->is_read = true;
            found           = direct;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void
umi_direct_put(umi_direct *direct)
{
    bool is_over;

    pthread_mutex_lock(&lock);
    assert(direct->is_read);
    direct->is_read = false;
    is_over         = direct->is_over;
    pthread_mutex_unlock(&lock);
    if (is_over) {
        free(direct);
    }
}

const umx_buffer *
umi_direct_lock(umi_direct *direct)
{
    pthread_mutex_lock(&lock);
    if (!direct->is_over) {
        return &direct->buf;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void
umi_direct_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
