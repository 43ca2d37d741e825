/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: outputs/slot_table outputs/publish outputs/extent outputs/reader */
/* tests: outputs/item outputs/group outputs/fetch outputs/remote_read */
/* tests: outputs/view outputs/window outputs/post outputs/writer */
/* tests: outputs/file */
#include <string.h>
#include <sys/stat.h>
#include <umx/outputs.h>

#include "world.h"

enum {
    MAX_MAPS = 64
};

typedef struct maps {
    world              *w;
    uint32_t            num_maps;
    uint32_t            num_partitions;
    umx_outputs        *outputs[MAX_RANKS];
    umx_outputs_reader *readers[MAX_RANKS];
    unsigned            flags;      /* of writers */
    unsigned            elsewhere;  /* of readers */
    unsigned            later;      /* of fetches */
    const char         *dir;        /* files are written to; or NULL */
    size_t              len;        /* of the longest partition */
    uint64_t            timeout_ns; /* of fetches; 0: 20 s */
} maps;

/* ---- what is written -----------------------------------------------------
 */

static size_t
len_of(const maps *m, uint32_t map, uint32_t partition, uint64_t epoch)
{
    size_t seed = map * 31 + partition * 17 + (size_t)epoch * 7;

    return (seed % 4 == 0) ? 0 : seed * 7919 % m->len + 1;
}

static unsigned char
content_of(uint32_t map, uint32_t partition, uint64_t epoch, size_t i)
{
    return (unsigned char)(map * 3 + partition * 5 + epoch * 11 + i * 13);
}

static void
open_maps(maps *m, world *w, int size, uint32_t num_maps,
          uint32_t num_partitions)
{
    umx_outputs_params params = {.field_mask = UMX_OUTPUTS_FIELD_WINDOW |
                                               UMX_OUTPUTS_FIELD_MAPPED,
                                 .num_maps       = num_maps,
                                 .num_partitions = num_partitions,
                                 .window         = 8192,
                                 .max_mapped     = 16384};
    job                jobs[MAX_RANKS];

    m->w              = w;
    m->num_maps       = num_maps;
    m->num_partitions = num_partitions;
    m->len            = (m->len == 0) ? 3000 : m->len;
    if (w->size == 0) {
        world_open(w, size);
    }
    for (int i = 0; i < size; i++) {
        umx_op_params how = job_params(&jobs[i]);
        umx_request  *req = NULL;

        job_posted(&jobs[i],
                   umx_outputs_create(w->comms[i], &params, &how,
                                      &m->outputs[i], &req),
                   &req);
    }
    world_wait(w, jobs, size, UMX_OK);
    for (int i = 0; i < size; i++) {
        assert_int_equal(umx_outputs_reader_create(m->outputs[i], m->elsewhere,
                                                   &m->readers[i]),
                         UMX_OK);
    }
}

static void
close_maps(maps *m)
{
    for (int i = 0; i < m->w->size; i++) {
        if (m->readers[i] != NULL) {
            umx_outputs_reader_destroy(m->readers[i]);
        }
    }
    for (int i = 0; i < m->w->size; i++) {
        if (m->outputs[i] != NULL) {
            umx_outputs_destroy(m->outputs[i]);
        }
    }
}

static char *
path_of(const maps *m, uint32_t map, char *path)
{
    (void)sprintf(path, "%s/map%u", m->dir, map);
    return path;
}

static umx_outputs_writer *
write_map(maps *m, int rank, uint32_t map, uint64_t epoch)
{
    char                      path[256];
    umx_outputs_writer_params params = {
        .field_mask = UMX_OUTPUTS_WRITER_FIELD_FLAGS,
        .map        = map,
        .flags      = m->flags};
    umx_outputs_writer *writer;
    unsigned char      *data = malloc(m->len + 1);

    if (m->dir != NULL) {
        params.field_mask |= UMX_OUTPUTS_WRITER_FIELD_PATH;
        params.path = path_of(m, map, path);
    }
    assert_int_equal(
        umx_outputs_writer_create(m->outputs[rank], &params, &writer), UMX_OK);
    for (uint32_t n = 0; n < m->num_partitions; n++) {
        /* Odd maps come in another order, and in two pieces. */
        uint32_t p   = (map % 2 == 0) ? n : m->num_partitions - 1 - n;
        size_t   len = len_of(m, map, p, epoch), half = len / 2;

        for (size_t i = 0; i < len; i++) {
            data[i] = content_of(map, p, epoch, i);
        }
        half = (map % 2 == 0) ? len : half;
        assert_int_equal(umx_outputs_write(writer, p, data, half), UMX_OK);
        if (half != len && n % 2 == 0) {
            assert_int_equal(umx_outputs_write(writer, 0, data, 0), UMX_OK);
        }
        assert_int_equal(umx_outputs_write(writer, p, data + half, len - half),
                         UMX_OK);
    }
    free(data);
    return writer;
}

static umx_status
commit(maps *m, umx_outputs_writer *writer)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(&j, umx_outputs_commit(writer, &how, &req), &req);
    return world_wait_one(m->w, &j);
}

static uint64_t
put_map(maps *m, int rank, uint32_t map, uint64_t epoch)
{
    umx_outputs_writer *writer = write_map(m, rank, map, epoch);
    uint64_t            len, got;

    assert_int_equal(commit(m, writer), UMX_OK);
    umx_outputs_writer_query(writer, &len, &got);
    umx_outputs_writer_destroy(writer);
    return got;
}

static void
put_all(maps *m)
{
    for (uint32_t map = 0; map < m->num_maps; map++) {
        assert_int_equal(put_map(m, (int)map % m->w->size, map, 1), 1);
    }
}

/* ---- what is read --------------------------------------------------------
 */

static umx_outputs_fetch *
begin_fetch(maps *m, int rank, uint32_t first, uint32_t count)
{
    umx_outputs_fetch_params params = {
        .field_mask = UMX_OUTPUTS_FETCH_FIELD_TIMEOUT |
                      UMX_OUTPUTS_FETCH_FIELD_FLAGS |
                      UMX_OUTPUTS_FETCH_FIELD_BYTES,
        .first      = first,
        .count      = count,
        .max_bytes  = 2 * m->len,
        .timeout_ns = (m->timeout_ns != 0) ? m->timeout_ns : 20 * SECOND_NS,
        .flags      = m->later};
    umx_outputs_fetch *fetch;

    assert_int_equal(
        umx_outputs_fetch_create(m->readers[rank], &params, &fetch), UMX_OK);
    return fetch;
}

static umx_status
wait_for(maps *m, umx_outputs_fetch *fetch)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(&j, umx_outputs_wait(fetch, &how, &req), &req);
    return world_wait_one(m->w, &j);
}

static umx_status
next(maps *m, umx_outputs_fetch *fetch, umx_outputs_block **block_p)
{
    umx_status status;

    *block_p = NULL;
    while ((status = umx_outputs_take(fetch, block_p)) == UMX_INPROGRESS) {
        status = wait_for(m, fetch);
        if (status != UMX_OK) {
            return status;
        }
    }
    return status;
}

static void
get_away(maps *m, umx_outputs_block *block, unsigned char *data, size_t len)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_buffer    buf = umx_host_buffer(data, len);
    umx_request  *req = NULL;

    job_posted(&j, umx_outputs_block_get(block, &buf, &how, &req), &req);
    assert_int_equal(world_wait_one(m->w, &j), UMX_OK);
}

static void
check_block(maps *m, umx_outputs_block *block, uint64_t epoch)
{
    umx_outputs_block_info info;
    unsigned char         *copy = NULL;
    const unsigned char   *data;

    umx_outputs_block_query(block, &info);
    assert_int_equal(info.epoch, epoch);
    assert_int_equal(info.len, len_of(m, info.map, info.partition, epoch));
    data = info.data;
    if (info.place == UMX_OUTPUTS_AWAY) {
        assert_null(data);
        copy = malloc(info.len);
        data = copy;
        get_away(m, block, copy, info.len);
    }
    for (size_t i = 0; i < info.len; i++) {
        assert_int_equal(data[i],
                         content_of(info.map, info.partition, epoch, i));
    }
    free(copy);
}

/* Read partitions of all maps, and check that each block comes once. */
static void
read_partitions(maps *m, int rank, uint32_t first, uint32_t count,
                uint64_t epoch)
{
    umx_outputs_fetch *fetch    = begin_fetch(m, rank, first, count);
    size_t             expected = 0, got = 0;
    umx_outputs_block *block;
    bool *seen = calloc((size_t)m->num_maps * m->num_partitions, sizeof(*seen));

    for (uint32_t map = 0; map < m->num_maps; map++) {
        for (uint32_t p = first; p < first + count; p++) {
            expected += (len_of(m, map, p, epoch) != 0) ? 1 : 0;
        }
    }
    for (;;) {
        umx_outputs_block_info info;

        assert_int_equal(next(m, fetch, &block), UMX_OK);
        if (block == NULL) {
            break;
        }
        umx_outputs_block_query(block, &info);
        assert_in_range(info.partition, first, first + count - 1);
        assert_false(seen[info.map * m->num_partitions + info.partition]);
        seen[info.map * m->num_partitions + info.partition] = true;
        check_block(m, block, epoch);
        umx_outputs_block_release(block);
        got++;
    }
    assert_int_equal(got, expected);
    free(seen);
    umx_outputs_fetch_destroy(fetch);
}

static void
read_all_of(maps *m)
{
    for (int rank = 0; rank < m->w->size; rank++) {
        read_partitions(m, rank, 0, 1, 1);
        read_partitions(m, rank, m->num_partitions / 2, 3, 1);
        read_partitions(m, rank, 0, m->num_partitions, 1);
    }
}

/* ---- the tests -----------------------------------------------------------
 */

static void
test_every_rank_reads_every_map(void **state)
{
    maps m = {.w = NULL};

    open_maps(&m, *state, 3, 7, 9);
    put_all(&m);
    read_all_of(&m);
    close_maps(&m);
}

static void
test_one_rank_alone(void **state)
{
    maps m = {.flags = UMX_OUTPUTS_FLAG_BIG_ENDIAN};

    open_maps(&m, *state, 1, 3, 5);
    put_all(&m);
    read_all_of(&m);
    close_maps(&m);
}

static void
test_checksums_and_byte_order(void **state)
{
    maps m = {.flags = UMX_OUTPUTS_FLAG_BIG_ENDIAN |
                       UMX_OUTPUTS_FLAG_CHECKSUMS};

    open_maps(&m, *state, 2, 4, 6);
    put_all(&m);
    read_all_of(&m);
    close_maps(&m);
}

static void
test_as_if_elsewhere(void **state)
{
    maps m = {.elsewhere = UMX_OUTPUTS_READER_FLAG_ELSEWHERE};

    open_maps(&m, *state, 2, 5, 6);
    put_all(&m);
    read_all_of(&m);
    close_maps(&m);
}

static void
test_blocks_that_are_read_later(void **state)
{
    maps m = {.elsewhere = UMX_OUTPUTS_READER_FLAG_ELSEWHERE,
              .later     = UMX_OUTPUTS_FETCH_FLAG_LATER};

    open_maps(&m, *state, 2, 5, 6);
    put_all(&m);
    read_all_of(&m);
    close_maps(&m);
}

static void
remove_files(const maps *m)
{
    char path[256];

    for (uint32_t map = 0; map < m->num_maps; map++) {
        assert_int_equal(unlink(path_of(m, map, path)), 0);
    }
    assert_int_equal(rmdir(m->dir), 0); /* there is nothing else in it */
}

static void
test_files(void **state)
{
    char dir[] = "/tmp/umx-outputs-XXXXXX";

    maps m = {.dir = mkdtemp(dir), .flags = UMX_OUTPUTS_FLAG_CHECKSUMS};

    open_maps(&m, *state, 2, 4, 6);
    put_all(&m);
    read_all_of(&m);
    close_maps(&m);
    remove_files(&m);
}

/* Partitions are shorter and longer than a window, and lie in two. */
static void
test_windows_of_files(void **state)
{
    char   dir[] = "/tmp/umx-outputs-XXXXXX";
    size_t now, most;

    maps m = {.dir       = mkdtemp(dir),
              .elsewhere = UMX_OUTPUTS_READER_FLAG_ELSEWHERE,
              .len       = 20000};

    open_maps(&m, *state, 2, 4, 6);
    put_all(&m);
    read_all_of(&m);
    umx_outputs_mapped(m.outputs[0], &now, &most);
    assert_in_range(most, 8192, 16384);
    assert_true(now <= most);
    close_maps(&m);
    remove_files(&m);
}

static void
test_another_epoch_is_read(void **state)
{
    maps m = {.w = NULL};

    open_maps(&m, *state, 2, 3, 4);
    put_all(&m);
    read_partitions(&m, 1, 0, 4, 1);
    for (uint64_t epoch = 2; epoch < 6; epoch++) {
        for (uint32_t map = 0; map < 3; map++) {
            umx_outputs_info info;

            assert_int_equal(put_map(&m, (int)(map + epoch) % 2, map, epoch),
                             epoch);
            assert_int_equal(umx_outputs_find(m.outputs[0], map, &info),
                             UMX_OK);
            assert_int_equal(info.epoch, epoch);
            assert_int_equal(info.rank, (map + epoch) % 2);
        }
        read_partitions(&m, 0, 0, 4, epoch);
        read_partitions(&m, 1, 1, 2, epoch);
    }
    close_maps(&m);
}

static void
test_a_missing_map_is_awaited(void **state)
{
    maps               m = {.timeout_ns = SECOND_NS / 20};
    uint32_t           missing[4];
    umx_outputs_fetch *fetch;
    umx_outputs_block *block;
    umx_outputs_info   info;

    open_maps(&m, *state, 2, 3, 4);
    (void)put_map(&m, 0, 1, 1);
    fetch = begin_fetch(&m, 1, 0, 4);
    while (next(&m, fetch, &block) == UMX_OK) {
        assert_non_null(block);
        umx_outputs_block_release(block);
    }
    assert_int_equal(umx_outputs_missing(fetch, missing, 4), 2);
    assert_int_equal(missing[0], 0);
    assert_int_equal(missing[1], 2);
    assert_int_equal(umx_outputs_find(m.outputs[1], 2, &info), UMX_ERR_NO_ELEM);
    assert_int_equal(umx_outputs_find(m.outputs[1], 3, &info),
                     UMX_ERR_OUT_OF_RANGE);
    (void)put_map(&m, 0, 0, 1);
    (void)put_map(&m, 1, 2, 1);
    umx_outputs_fetch_destroy(fetch);
    m.timeout_ns = 0;
    fetch        = begin_fetch(&m, 1, 0, 4);
    do {
        assert_int_equal(next(&m, fetch, &block), UMX_OK);
        if (block != NULL) {
            check_block(&m, block, 1);
            umx_outputs_block_release(block);
        }
    } while (block != NULL);
    umx_outputs_fetch_destroy(fetch);
    close_maps(&m);
}

static void
test_a_waiting_call_is_woken_and_cancelled(void **state)
{
    maps               m = {.w = NULL};
    umx_outputs_fetch *fetch;
    umx_outputs_block *block;
    umx_op_params      params;
    umx_request       *req = NULL;
    job                j;

    open_maps(&m, *state, 2, 1, 4);
    fetch  = begin_fetch(&m, 1, 0, 4);
    params = job_params(&j);
    assert_int_equal(umx_outputs_wait(fetch, &params, &req), UMX_INPROGRESS);
    job_posted(&j, UMX_INPROGRESS, &req);
    assert_int_equal(umx_outputs_wait(fetch, &params, &req), UMX_ERR_BUSY);
    assert_int_equal(umx_request_cancel(j.req), UMX_OK);
    assert_int_equal(world_wait_one(m.w, &j), UMX_ERR_CANCELED);
    params = job_params(&j);
    assert_int_equal(umx_outputs_wait(fetch, &params, &req), UMX_INPROGRESS);
    job_posted(&j, UMX_INPROGRESS, &req);
    (void)put_map(&m, 0, 0, 1);
    assert_int_equal(world_wait_one(m.w, &j), UMX_OK);
    assert_int_equal(next(&m, fetch, &block), UMX_OK);
    check_block(&m, block, 1);
    umx_outputs_block_release(block);
    params = job_params(&j);
    umx_outputs_fetch_destroy(fetch);
    close_maps(&m);
}

static void
test_a_fetch_ends_while_it_waits_and_reads(void **state)
{
    maps               m = {.elsewhere = UMX_OUTPUTS_READER_FLAG_ELSEWHERE};
    umx_outputs_fetch *fetch;
    umx_op_params      params;
    umx_request       *req = NULL;
    job                j;

    open_maps(&m, *state, 2, 2, 4);
    (void)put_map(&m, 0, 0, 1);
    fetch  = begin_fetch(&m, 1, 0, 4);
    params = job_params(&j);
    job_posted(&j, umx_outputs_wait(fetch, &params, &req), &req);
    umx_outputs_fetch_destroy(fetch);
    (void)world_wait_one(m.w, &j);
    fetch = begin_fetch(&m, 1, 0, 4);
    umx_outputs_reader_destroy(m.readers[1]);
    m.readers[1] = NULL;
    assert_int_equal(wait_for(&m, fetch), UMX_OK);
    umx_outputs_fetch_destroy(fetch);
    close_maps(&m);
}

/* Blocks outlive the fetch, the readers, the outputs and the workers. */
static void
test_blocks_may_be_kept(void **state)
{
    maps               m = {.w = NULL};
    umx_outputs_block *kept[64];
    size_t             count = 0;

    open_maps(&m, *state, 2, 4, 4);
    put_all(&m);
    for (int rank = 0; rank < 2; rank++) {
        umx_outputs_fetch *fetch = begin_fetch(&m, rank, 0, 4);

        do {
            assert_int_equal(next(&m, fetch, &kept[count]), UMX_OK);
        } while (kept[count] != NULL && ++count < 64);
        umx_outputs_fetch_destroy(fetch);
    }
    close_maps(&m);
    for (size_t i = 0; i < count / 2; i++) {
        check_block(&m, kept[i], 1);
        umx_outputs_block_release(kept[i]);
    }
    for (int r = 0; r < 2; r++) {
        umx_comm_close(m.w->comms[r]);
        umx_comm_destroy(m.w->comms[r]);
        m.w->comms[r] = NULL;
    }
    for (int r = 0; r < 2; r++) {
        umx_worker_destroy(m.w->workers[r]);
        m.w->workers[r] = NULL;
    }
    for (size_t i = count / 2; i < count; i++) {
        check_block(&m, kept[i], 1);
        umx_outputs_block_release(kept[i]);
    }
}

/* Rank 0 ends; its maps are written again by the other one. */
static void
test_a_rank_ends_and_its_maps_are_written_again(void **state)
{
    maps               m = {.elsewhere = UMX_OUTPUTS_READER_FLAG_ELSEWHERE};
    umx_outputs_failed failed;
    umx_outputs_fetch *fetch;
    umx_outputs_block *block;
    umx_status         status;

    open_maps(&m, *state, 3, 3, 4);
    put_all(&m);
    umx_outputs_reader_destroy(m.readers[0]);
    umx_outputs_destroy(m.outputs[0]);
    m.readers[0] = NULL;
    m.outputs[0] = NULL;
    fetch        = begin_fetch(&m, 1, 0, 4);
    do {
        status = next(&m, fetch, &block);
        if (block != NULL) {
            umx_outputs_block_release(block);
        }
    } while (status == UMX_OK && block != NULL);
    assert_int_equal(status, UMX_ERR_STALE_KEY);
    assert_true(umx_outputs_failure(fetch, &failed));
    assert_int_equal(failed.map, 0);
    assert_int_equal(failed.rank, 0);
    assert_int_equal(failed.epoch, 1);
    assert_int_equal(failed.trouble, UMX_OUTPUTS_LOST);
    assert_int_equal(next(&m, fetch, &block), UMX_ERR_STALE_KEY);
    umx_outputs_fetch_destroy(fetch);
    assert_int_equal(put_map(&m, 2, 0, 2), 2);
    assert_int_equal(put_map(&m, 2, 1, 2), 2);
    assert_int_equal(put_map(&m, 1, 2, 2), 2);
    read_partitions(&m, 1, 0, 4, 2);
    read_partitions(&m, 2, 0, 4, 2);
    close_maps(&m);
}

static void
test_arguments(void **state)
{
    maps                      m      = {.w = NULL};
    uint32_t                  wrong  = 3;
    umx_outputs_writer_params params = {.map = 3};
    umx_outputs_fetch_params  range  = {.first = 4, .count = 1};
    umx_outputs_params        none   = {.num_maps = 0, .num_partitions = 1};
    umx_outputs_writer       *writer;
    umx_outputs_fetch        *fetch;
    umx_outputs              *outputs;
    umx_request              *req;

    open_maps(&m, *state, 1, 3, 4);
    assert_int_equal(
        umx_outputs_create(m.w->comms[0], &none, NULL, &outputs, &req),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_outputs_writer_create(m.outputs[0], &params, &writer),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_outputs_fetch_create(m.readers[0], &range, &fetch),
                     UMX_ERR_OUT_OF_RANGE);
    range = (umx_outputs_fetch_params){
        .field_mask = UMX_OUTPUTS_FETCH_FIELD_MAPS,
        .count      = 1,
        .maps       = &wrong,
        .num_maps   = 1};
    assert_int_equal(umx_outputs_fetch_create(m.readers[0], &range, &fetch),
                     UMX_ERR_OUT_OF_RANGE);
    params.map = 0;
    assert_int_equal(umx_outputs_writer_create(m.outputs[0], &params, &writer),
                     UMX_OK);
    assert_int_equal(umx_outputs_write(writer, 4, "x", 1),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(commit(&m, writer), UMX_OK);
    assert_int_equal(umx_outputs_write(writer, 0, "x", 1), UMX_ERR_CLOSED);
    assert_int_equal(umx_outputs_commit(writer, NULL, &req), UMX_ERR_CLOSED);
    umx_outputs_writer_destroy(writer);
    close_maps(&m);
}

/* Both ranks commit the same map, and one goes on before the other is done. */
static void
test_two_ranks_commit_one_map(void **state)
{
    maps m = {.w = NULL};

    open_maps(&m, *state, 2, 1, 4);
    for (int round = 0; round < 20; round++) {
        job                 jobs[2];
        umx_outputs_writer *writers[2];
        umx_outputs_info    info[2];
        uint64_t            len, epochs[2];

        for (int i = 0; i < 2; i++) {
            umx_op_params how = job_params(&jobs[i]);
            umx_request  *req = NULL;

            writers[i] = write_map(&m, i, 0, 1);
            job_posted(&jobs[i], umx_outputs_commit(writers[i], &how, &req),
                       &req);
        }
        world_wait(m.w, jobs, 2, UMX_OK);
        for (int i = 0; i < 2; i++) {
            umx_outputs_writer_query(writers[i], &len, &epochs[i]);
            umx_outputs_writer_destroy(writers[i]);
            assert_int_equal(umx_outputs_find(m.outputs[i], 0, &info[i]),
                             UMX_OK);
        }
        assert_int_not_equal(epochs[0], epochs[1]);
        assert_int_equal(info[0].epoch, info[1].epoch);
        assert_int_equal(info[0].rank, info[1].rank);
    }
    close_maps(&m);
}

/* Close, and tell how many are mapped if that takes longer than it may. */
static umx_status
close_outputs(maps *m, int rank, uint64_t timeout_ns)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(&j, umx_outputs_close(m->outputs[rank], timeout_ns, &how, &req),
               &req);
    return world_wait_one(m->w, &j);
}

static void
test_close_waits_until_nothing_is_mapped(void **state)
{
    maps               m = {.w = NULL};
    umx_outputs_fetch *fetch;
    umx_outputs_block *block;
    umx_outputs_info   info;

    open_maps(&m, *state, 2, 2, 4);
    put_all(&m);
    fetch = begin_fetch(&m, 1, 0, 4);
    do {
        umx_outputs_block_info what;

        assert_int_equal(next(&m, fetch, &block), UMX_OK);
        assert_non_null(block);
        umx_outputs_block_query(block, &what);
        if (what.rank == 0) {
            break;
        }
        umx_outputs_block_release(block);
    } while (true);
    umx_outputs_fetch_destroy(fetch);
    umx_outputs_reader_forget(m.readers[1]);
    assert_int_equal(close_outputs(&m, 0, SECOND_NS / 100), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_outputs_num_mapped(m.outputs[0]), 1);
    assert_int_equal(umx_outputs_find(m.outputs[0], 0, &info), UMX_ERR_CLOSED);
    check_block(&m, block, 1);
    umx_outputs_block_release(block);
    assert_int_equal(close_outputs(&m, 0, 5 * SECOND_NS), UMX_OK);
    assert_int_equal(umx_outputs_num_mapped(m.outputs[0]), 0);
    close_maps(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_every_rank_reads_every_map),
        WORLD_TEST(test_one_rank_alone),
        WORLD_TEST(test_checksums_and_byte_order),
        WORLD_TEST(test_as_if_elsewhere),
        WORLD_TEST(test_blocks_that_are_read_later),
        WORLD_TEST(test_files),
        WORLD_TEST(test_windows_of_files),
        WORLD_TEST(test_another_epoch_is_read),
        WORLD_TEST(test_a_missing_map_is_awaited),
        WORLD_TEST(test_a_waiting_call_is_woken_and_cancelled),
        WORLD_TEST(test_a_fetch_ends_while_it_waits_and_reads),
        WORLD_TEST(test_blocks_may_be_kept),
        WORLD_TEST(test_a_rank_ends_and_its_maps_are_written_again),
        WORLD_TEST(test_arguments),
        WORLD_TEST(test_two_ranks_commit_one_map),
        {"test_close_waits_until_nothing_is_mapped",
         test_close_waits_until_nothing_is_mapped, world_setup, world_teardown,
         NULL},
    };

    return UNIT_RUN(tests);
}
