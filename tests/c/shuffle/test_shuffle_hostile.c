/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: shuffle/wire */
/* A rank that sends the messages of a shuffle by hand. Rank 0 is honest and
 * owns partition 0 of 2; rank 1 lies. */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <umx/layer.h>
#include <umx/shuffle.h>

#include "shuffle/shuffle.h"

enum {
    BYTES = 60000
};

typedef struct scene {
    world        *w;
    umx_shuffler *honest;
    umx_comm     *liar; /* of the same ranks */
    umx_memh     *memh; /* the liar's */
    job           wait;
    job           lie;
    uint8_t       message[UMI_SHUFFLE_MESSAGE_SIZE + 1];
    umi_writer    writer;
} scene;

/* One of many in a test: each has a shuffle of its own. */
static void
open_scene(scene *s, world *w, uint64_t op_id)
{
    umx_shuffler_params params = {.op_id = op_id, .num_partitions = 2};
    umx_op_params       with;
    umx_request        *req = NULL;
    uint32_t            got;

    *s = (scene){.w = w};
    if (w->size == 0) {
        world_open(w, 2);
    }
    assert_int_equal(umx_shuffler_create(w->comms[0], &params, &s->honest),
                     UMX_OK);
    assert_int_equal(umx_comm_derive(w->comms[1], op_id, &s->liar), UMX_OK);
    assert_int_equal(umx_memh_alloc(w->context, BYTES, &s->memh), UMX_OK);
    with = job_params(&s->wait);
    job_posted(
        &s->wait,
        umx_shuffler_wait(s->honest, UMX_PARTITION_ALL, &with, &req, &got),
        &req);
}

static void
close_scene(scene *s)
{
    umx_shuffler_destroy(s->honest);
    umx_comm_destroy(s->liar);
    umx_memh_release(s->memh);
}

static void
begin_message(scene *s, unsigned acks)
{
    umi_writer_init(&s->writer, s->message, sizeof(s->message));
    umi_write_u16(&s->writer, (uint16_t)acks);
    umi_write_u16(&s->writer, 1);
}

static void
add(scene *s, umi_shuffle_record record)
{
    umi_shuffle_record_encode(&record, &s->writer);
}

static void
add_key(scene *s, uint32_t number)
{
    size_t         len;
    const uint8_t *key = umx_memh_key(s->memh, &len);

    add(s, (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_KEY,
                                .key  = number,
                                .data = key,
                                .len  = len});
}

static void
post_message(scene *s, size_t len)
{
    umx_op_params params = job_params(&s->lie);
    umx_buffer    buf    = umx_host_buffer(s->message, len);
    umx_request  *req    = NULL;

    job_posted(&s->lie, umx_comm_isend(s->liar, 0, 0, &buf, &params, &req),
               &req);
}

/* Send `len` bytes of it, and wait until rank 0 has read them. */
static void
send_message(scene *s, size_t len)
{
    post_message(s, len);
    (void)world_wait_one(s->w, &s->lie);
    for (int i = 0; i < 20; i++) {
        world_step(s->w);
    }
}

static size_t
length(const scene *s)
{
    return (size_t)(s->writer.pos - s->message);
}

/* It ends the shuffle, by a text that names the rank. */
static void
expect_refused(scene *s)
{
    assert_int_equal(world_wait_one(s->w, &s->wait), UMX_ERR_RANK_FAILED);
    assert_non_null(
        strstr(umx_comm_reason(umx_shuffler_comm(s->honest)), "rank 1"));
    close_scene(s);
}

/* ---- one record ----------------------------------------------------------
 */

static void
test_records_that_make_no_sense(void **state)
{
    static const umi_shuffle_record bad[] = {
        {.kind      = UMI_SHUFFLE_RECORD_CHUNK,
         .id        = 1,
         .partition = 0,
         .len       = 5000},
        {.kind = UMI_SHUFFLE_RECORD_INLINE, .partition = 1},
        {.kind = UMI_SHUFFLE_RECORD_INLINE, .partition = 2},
        {.kind = UMI_SHUFFLE_RECORD_INLINE, .partition = UMX_PARTITION_ALL},
        {.kind = UMI_SHUFFLE_RECORD_FINISHED, .partition = 1},
        {.kind = UMI_SHUFFLE_RECORD_FINISHED, .partition = 7},
        {.kind = UMI_SHUFFLE_RECORD_TAKEN, .id = 0},
        {.kind = UMI_SHUFFLE_RECORD_TAKEN, .id = 1},
        {.kind = UMI_SHUFFLE_RECORD_TAKEN, .id = UINT64_MAX},
        {.kind = UMI_SHUFFLE_RECORD_RELEASED, .id = 0},
        {.kind = UMI_SHUFFLE_RECORD_RELEASED, .id = 1},
        {.kind = UMI_SHUFFLE_RECORD_FORGET, .key = 0},
        {.kind = UMI_SHUFFLE_RECORD_FORGET, .key = UINT32_MAX},
        {.kind = UMI_SHUFFLE_RECORD_KEY, .key = 0},
        {.kind = UMI_SHUFFLE_RECORD_KEY,
         .data = (const uint8_t *)"garbage",
         .len  = 7},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        scene s;

        open_scene(&s, *state, i);
        begin_message(&s, 0);
        add(&s, bad[i]);
        send_message(&s, length(&s));
        expect_refused(&s);
    }
}

/* Chunks of a memory of BYTES bytes. */
static void
test_chunks_that_make_no_sense(void **state)
{
    static const umi_shuffle_record bad[] = {
        {.partition = 0, .key = 1, .len = 5000},
        {.partition = 0, .key = UINT32_MAX, .len = 5000},
        {.partition = 1, .len = 5000},
        {.partition = 2, .len = 5000},
        {.partition = 0, .len = 0},
        {.partition = 0, .len = BYTES + 1},
        {.partition = 0, .offset = 1, .len = BYTES},
        {.partition = 0, .offset = BYTES, .len = 1},
        {.partition = 0, .offset = UINT64_MAX, .len = 2},
        {.partition = 0, .offset = 2, .len = UINT64_MAX},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        umi_shuffle_record record = bad[i];
        scene              s;

        open_scene(&s, *state, i);
        begin_message(&s, 0);
        add_key(&s, 0);
        record.kind = UMI_SHUFFLE_RECORD_CHUNK;
        record.id   = 1;
        add(&s, record);
        send_message(&s, length(&s));
        expect_refused(&s);
    }
}

static void
test_numbers_of_keys(void **state)
{
    for (int how = 0; how < 2; how++) {
        scene s;

        open_scene(&s, *state, (uint64_t)how);
        begin_message(&s, 0);
        add_key(&s, (how == 0) ? UINT32_MAX : 3);
        if (how == 1) {
            add_key(&s, 3);
        }
        send_message(&s, length(&s));
        expect_refused(&s);
    }
}

static void
test_records_after_the_end(void **state)
{
    static const umi_shuffle_record bad[] = {
        {.kind = UMI_SHUFFLE_RECORD_INLINE, .partition = 0},
        {.kind      = UMI_SHUFFLE_RECORD_CHUNK,
         .id        = 1,
         .partition = 0,
         .len       = 5000},
        {.kind = UMI_SHUFFLE_RECORD_FINISHED, .partition = 0},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        scene s;

        open_scene(&s, *state, i);
        begin_message(&s, 0);
        add_key(&s, 0);
        add(&s, (umi_shuffle_record){.kind      = UMI_SHUFFLE_RECORD_FINISHED,
                                     .partition = 0});
        add(&s, bad[i]);
        send_message(&s, length(&s));
        expect_refused(&s);
    }
}

/* ---- messages ------------------------------------------------------------
 */

static void
test_messages_that_are_cut(void **state)
{
    size_t len;
    scene  s;

    for (size_t cut = 0;; cut++) {
        open_scene(&s, *state, cut);
        begin_message(&s, 0);
        add(&s, (umi_shuffle_record){.kind      = UMI_SHUFFLE_RECORD_INLINE,
                                     .partition = 0,
                                     .data      = (const uint8_t *)"abc",
                                     .len       = 3});
        len = length(&s);
        if (cut == len) {
            break;
        }
        if (cut == UMI_SHUFFLE_HEADER_SIZE) { /* it has no records */
            close_scene(&s);
            continue;
        }
        send_message(&s, cut);
        expect_refused(&s);
    }
    send_message(&s, len);
    assert_int_equal(s.wait.status, UMX_INPROGRESS);
    close_scene(&s);
}

static void
test_kinds_that_are_none(void **state)
{
    for (unsigned kind = 0; kind < 256; kind += (kind == 0) ? 8 : 247) {
        scene s;

        open_scene(&s, *state, kind);
        begin_message(&s, 0);
        umi_write_u8(&s.writer, (uint8_t)kind);
        umi_write_u64(&s.writer, 0);
        send_message(&s, length(&s));
        expect_refused(&s);
    }
}

static void
test_acks_of_nothing(void **state)
{
    for (unsigned acks = 1; acks <= UINT16_MAX; acks += UINT16_MAX - 1) {
        scene s;

        open_scene(&s, *state, acks);
        begin_message(&s, acks);
        send_message(&s, length(&s));
        expect_refused(&s);
    }
}

static void
test_a_message_that_is_too_long(void **state)
{
    scene s;

    open_scene(&s, *state, 0);
    begin_message(&s, 0);
    send_message(&s, sizeof(s.message));
    expect_refused(&s);
}

/* ---- leaving -------------------------------------------------------------
 */

/* Its partitions would never be complete here. */
static void
test_a_rank_that_leaves_too_early(void **state)
{
    for (int has_inserted = 0; has_inserted < 2; has_inserted++) {
        scene s;

        open_scene(&s, *state, (uint64_t)has_inserted);
        begin_message(&s, 0);
        if (has_inserted != 0) {
            add_key(&s, 0);
            add(&s, (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_CHUNK,
                                         .id   = 1,
                                         .len  = BYTES});
            add(&s, (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_INLINE});
        }
        send_message(&s, length(&s));
        umx_comm_close(s.liar);
        expect_refused(&s);
    }
}

/* It owns nothing of rank 0's, and has said that it inserts nothing. */
static void
test_a_rank_that_leaves_when_it_has_finished(void **state)
{
    scene s;

    open_scene(&s, *state, 0);
    begin_message(&s, 0);
    add(&s, (umi_shuffle_record){.kind      = UMI_SHUFFLE_RECORD_FINISHED,
                                 .partition = UMX_PARTITION_ALL});
    send_message(&s, length(&s));
    umx_comm_close(s.liar);
    for (int i = 0; i < 100; i++) {
        world_step(s.w);
    }
    assert_int_equal(s.wait.status, UMX_INPROGRESS);
    assert_int_equal(umx_shuffler_insert_finished(s.honest, UMX_PARTITION_ALL),
                     UMX_OK);
    assert_int_equal(world_wait_one(s.w, &s.wait), UMX_OK);
    close_scene(&s);
}

/* ---- what was inserted ---------------------------------------------------
 */

/* The number of the chunk that rank 0 has told of. */
static uint64_t
told_chunk(scene *s)
{
    umx_buffer         buf = umx_host_buffer(s->message, sizeof(s->message));
    umx_comm_status    got;
    umx_op_params      with;
    umx_request       *req = NULL;
    umi_reader         r;
    umi_shuffle_record record;
    job                j;

    memset(s->message, 0, sizeof(s->message));
    with = job_params(&j);
    job_posted(&j, umx_comm_irecv(s->liar, 0, 0, 0, &buf, &with, &req, &got),
               &req);
    assert_int_equal(world_wait_one(s->w, &j), UMX_OK);
    umi_reader_init(&r, s->message + UMI_SHUFFLE_HEADER_SIZE,
                    sizeof(s->message) - UMI_SHUFFLE_HEADER_SIZE);
    assert_true(umi_shuffle_record_decode(&record, &r));
    assert_int_equal(record.kind, UMI_SHUFFLE_RECORD_KEY);
    assert_true(umi_shuffle_record_decode(&record, &r));
    assert_int_equal(record.kind, UMI_SHUFFLE_RECORD_CHUNK);
    return record.id;
}

static void
test_a_chunk_is_released_once(void **state)
{
    umx_op_params with;
    umx_request  *req = NULL;
    umx_memh     *memh;
    uint64_t      id;
    job           insert;
    scene         s;

    open_scene(&s, *state, 0);
    assert_int_equal(umx_memh_alloc(s.w->context, BYTES, &memh), UMX_OK);
    with = job_params(&insert);
    job_posted(&insert,
               umx_shuffler_insert(s.honest, 1, memh, 0, BYTES, &with, &req),
               &req);
    id = told_chunk(&s);
    begin_message(&s, 1);
    add(&s, (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_TAKEN, .id = id});
    add(&s, (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_TAKEN, .id = id});
    send_message(&s, length(&s));
    assert_int_equal(insert.status, UMX_INPROGRESS);
    begin_message(&s, 0);
    add(&s,
        (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_RELEASED, .id = id});
    send_message(&s, length(&s));
    assert_int_equal(insert.status, UMX_OK);
    assert_int_equal(s.wait.status, UMX_INPROGRESS);
    begin_message(&s, 0);
    add(&s,
        (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_RELEASED, .id = id});
    send_message(&s, length(&s));
    umx_memh_release(memh);
    expect_refused(&s);
}

/* The memory of a key that was forgotten stays as long as a chunk of it. */
static void
test_a_key_is_forgotten_while_its_chunk_is_read(void **state)
{
    umx_shuffle_chunk     *chunks[1];
    umx_shuffle_chunk_info info;
    size_t                 count = 1;
    scene                  s;

    open_scene(&s, *state, 0);
    memset(umx_memh_buffer(s.memh)->data, 7, BYTES);
    begin_message(&s, 0);
    add_key(&s, 0);
    add(&s, (umi_shuffle_record){
                .kind = UMI_SHUFFLE_RECORD_CHUNK, .id = 1, .len = BYTES});
    add(&s, (umi_shuffle_record){.kind = UMI_SHUFFLE_RECORD_FORGET, .key = 0});
    add(&s, (umi_shuffle_record){.kind      = UMI_SHUFFLE_RECORD_FINISHED,
                                 .partition = 0});
    send_message(&s, length(&s));
    assert_int_equal(umx_shuffler_insert_finished(s.honest, 0), UMX_OK);
    assert_int_equal(world_wait_one(s.w, &s.wait), UMX_OK);
    assert_int_equal(umx_shuffler_extract(s.honest, 0, chunks, &count), UMX_OK);
    assert_int_equal(count, 1);
    umx_memh_release(s.memh);
    umx_shuffle_chunk_query(chunks[0], &info);
    assert_int_equal(info.len, BYTES);
    assert_int_equal(((const char *)info.data)[BYTES - 1], 7);
    umx_shuffle_chunk_release(chunks[0]);
    umx_shuffler_destroy(s.honest);
    umx_comm_destroy(s.liar);
}

/* Rank 1 dies when it has told of a chunk, which nobody can read then unless it
 * is mapped. */
static void
test_a_rank_dies_behind_its_chunk(void **state)
{
    const uint8_t *key;
    umx_memh      *memh;
    size_t         len;
    scene          s;

    open_scene(&s, *state, 0);
    assert_int_equal(umx_memh_alloc_private(s.w->context, BYTES, &memh),
                     UMX_OK);
    key = umx_memh_key(memh, &len);
    begin_message(&s, 0);
    add(&s, (umi_shuffle_record){
                .kind = UMI_SHUFFLE_RECORD_KEY, .data = key, .len = len});
    add(&s, (umi_shuffle_record){
                .kind = UMI_SHUFFLE_RECORD_CHUNK, .id = 1, .len = BYTES});
    post_message(&s, length(&s));
    umx_comm_destroy(s.liar);
    umx_worker_destroy(s.w->workers[1]);
    s.w->workers[1] = NULL;
    assert_int_equal(world_wait_one(s.w, &s.wait), UMX_ERR_RANK_FAILED);
    umx_shuffler_destroy(s.honest);
    umx_memh_release(s.memh);
    umx_memh_release(memh);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_records_that_make_no_sense),
        WORLD_TEST(test_chunks_that_make_no_sense),
        WORLD_TEST(test_numbers_of_keys),
        WORLD_TEST(test_records_after_the_end),
        WORLD_TEST(test_messages_that_are_cut),
        WORLD_TEST(test_kinds_that_are_none),
        WORLD_TEST(test_acks_of_nothing),
        WORLD_TEST(test_a_message_that_is_too_long),
        WORLD_TEST(test_a_rank_that_leaves_too_early),
        WORLD_TEST(test_a_rank_that_leaves_when_it_has_finished),
        WORLD_TEST(test_a_chunk_is_released_once),
        WORLD_TEST(test_a_key_is_forgotten_while_its_chunk_is_read),
        WORLD_TEST(test_a_rank_dies_behind_its_chunk),
    };

    return UNIT_RUN(tests);
}
