/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: outputs/slot_table outputs/reader outputs/window outputs/remote_read
 */
/* What other ranks say of their outputs is not true. */
#include <string.h>
#include <umx/outputs.h>

#include "world.h"

#include "outputs/outputs.h"
#include "outputs/remote_read.h"
#include "outputs/window.h"

enum {
    PARTITIONS = 4,
    WINDOW     = 4096
};

typedef struct two {
    world              *w;
    umx_outputs        *outputs[2];
    umx_outputs_reader *reader; /* of rank 1 */
} two;

static void
open_two(two *t, world *w, unsigned reader_flags)
{
    umx_outputs_params params = {.field_mask = UMX_OUTPUTS_FIELD_WINDOW |
                                               UMX_OUTPUTS_FIELD_MAPPED |
                                               UMX_OUTPUTS_FIELD_LEASE,
                                 .num_maps       = 2,
                                 .num_partitions = PARTITIONS,
                                 .window         = WINDOW,
                                 .max_mapped     = WINDOW,
                                 .lease_ns       = SECOND_NS / 20};
    job                jobs[2];

    t->w = w;
    world_open(w, 2);
    for (int i = 0; i < 2; i++) {
        umx_op_params how = job_params(&jobs[i]);
        umx_request  *req = NULL;

        job_posted(&jobs[i],
                   umx_outputs_create(w->comms[i], &params, &how,
                                      &t->outputs[i], &req),
                   &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
    assert_int_equal(
        umx_outputs_reader_create(t->outputs[1], reader_flags, &t->reader),
        UMX_OK);
}

static void
close_two(two *t)
{
    umx_outputs_reader_destroy(t->reader);
    umx_outputs_destroy(t->outputs[0]);
    umx_outputs_destroy(t->outputs[1]);
}

/* Rank 0 commits a map, of which each partition has 1000 bytes. */
static void
put_map(two *t, const char *path)
{
    umx_outputs_writer_params params = {
        .field_mask = (path != NULL) ? UMX_OUTPUTS_WRITER_FIELD_PATH : 0,
        .path       = path};
    umx_outputs_writer *writer;
    char                data[1000] = {1};
    job                 j;
    umx_op_params       how = job_params(&j);
    umx_request        *req = NULL;

    assert_int_equal(umx_outputs_writer_create(t->outputs[0], &params, &writer),
                     UMX_OK);
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        assert_int_equal(umx_outputs_write(writer, p, data, sizeof(data)),
                         UMX_OK);
    }
    job_posted(&j, umx_outputs_commit(writer, &how, &req), &req);
    assert_int_equal(world_wait_one(t->w, &j), UMX_OK);
    umx_outputs_writer_destroy(writer);
}

/* Read a map as far as that goes; returns the bytes that have come. */
static umx_status
read_map(two *t, umx_outputs_failed *failed, size_t *len_p)
{
    uint32_t                 map    = 0;
    umx_outputs_fetch_params params = {
        .field_mask = UMX_OUTPUTS_FETCH_FIELD_TIMEOUT |
                      UMX_OUTPUTS_FETCH_FIELD_MAPS,
        .count      = PARTITIONS,
        .maps       = &map,
        .num_maps   = 1,
        .timeout_ns = SECOND_NS / 2};
    umx_outputs_fetch *fetch;
    umx_outputs_block *block = NULL;
    umx_status         status;

    *len_p = 0;
    assert_int_equal(umx_outputs_fetch_create(t->reader, &params, &fetch),
                     UMX_OK);
    do {
        status = umx_outputs_take(fetch, &block);
        if (status == UMX_INPROGRESS) {
            job           j;
            umx_op_params how = job_params(&j);
            umx_request  *req = NULL;

            job_posted(&j, umx_outputs_wait(fetch, &how, &req), &req);
            status = world_wait_one(t->w, &j);
            continue;
        }
        if (status == UMX_OK && block != NULL) {
            umx_outputs_block_info info;

            umx_outputs_block_query(block, &info);
            *len_p += info.len;
            umx_outputs_block_release(block);
        } else {
            break;
        }
    } while (status == UMX_OK);
    (void)umx_outputs_failure(fetch, failed);
    umx_outputs_fetch_destroy(fetch);
    return status;
}

/* Change an offset of the map, which its owner can do. */
static void
test_offsets_that_make_no_sense(void **state)
{
    static const uint64_t wrong[] = {UINT64_MAX, UINT64_C(1) << 40, 1500, 4001};
    umx_outputs_failed    failed;
    two                   t;
    size_t                len;

    open_two(&t, *state, 0);
    put_map(&t, NULL);
    for (size_t i = 0; i < 4; i++) {
        umi_outputs_output *output = umi_outputs_find_own(
            t.outputs[0], 0, UINT64_C(1) << UMI_OUTPUTS_RANK_BITS);
        uint64_t *offsets = umx_memh_buffer(output->memh)->data;

        assert_int_equal(offsets[2], 2000);
        offsets[3] = wrong[i];
        umx_outputs_reader_forget(t.reader);
        assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_PROTOCOL);
        assert_int_equal(failed.trouble, UMX_OUTPUTS_DAMAGED);
        assert_int_equal(failed.map, 0);
        assert_int_equal(failed.rank, 0);
        assert_in_range(failed.partition, 2, 3);
        assert_true(len <= 4000);
        offsets[3] = 3000;
    }
    umx_outputs_reader_forget(t.reader);
    assert_int_equal(read_map(&t, &failed, &len), UMX_OK);
    assert_int_equal(len, 4000);
    close_two(&t);
}

static void
test_slots_of_noise(void **state)
{
    uint8_t           *table;
    umx_outputs_failed failed;
    umx_outputs_info   info;
    two                t;
    size_t             len;

    random_state = 77;
    open_two(&t, *state, 0);
    table = umx_memh_buffer(t.outputs[1]->table)->data;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < UMI_OUTPUTS_SLOT; i++) {
            table[UMI_OUTPUTS_HEADER + i] = (uint8_t)next_random(256);
        }
        assert_int_equal(umx_outputs_find(t.outputs[1], 0, &info),
                         UMX_ERR_NO_ELEM);
    }
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_TIMED_OUT);
    close_two(&t);
}

/* Write a slot that is whole, and wrong. */
static void
forge(two *t, umi_outputs_where where)
{
    uint8_t place[UMI_OUTPUTS_PLACE] = {0};
    size_t  len;

    where.epoch = UINT64_C(9) << UMI_OUTPUTS_RANK_BITS | where.rank;
    len         = umi_outputs_slot_encode(&where, place);
    umi_outputs_table_write(t->outputs[1], 0, where.epoch, place, len);
}

static void
test_slots_that_are_wrong(void **state)
{
    umx_outputs_failed  failed;
    umi_outputs_output *output;
    umi_outputs_where   where = {.kind = UMX_OUTPUTS_MEMORY};
    umx_outputs_info    info;
    size_t              key_len, len;
    two                 t;

    open_two(&t, *state, 0);
    put_map(&t, NULL);
    output        = umi_outputs_find_own(t.outputs[0], 0,
                                         UINT64_C(1) << UMI_OUTPUTS_RANK_BITS);
    where.key     = umx_memh_key(output->memh, &key_len);
    where.key_len = (uint16_t)key_len;
    where.len     = output->len + 1; /* longer than the memory */
    forge(&t, where);
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_PROTOCOL);
    assert_int_equal(failed.trouble, UMX_OUTPUTS_DAMAGED);
    where.len = 5; /* no room for the offsets */
    forge(&t, where);
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_PROTOCOL);
    where.len     = output->len;
    where.key     = (const uint8_t *)"no key";
    where.key_len = 6;
    forge(&t, where);
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_INVALID_KEY);
    assert_int_equal(failed.trouble, UMX_OUTPUTS_LOST);
    where.flags = UMI_OUTPUTS_OVERFLOW;
    forge(&t, where);
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_INVALID_KEY);
    where.key     = umx_memh_key(output->memh, &key_len);
    where.key_len = (uint16_t)key_len; /* of what is no overflow */
    forge(&t, where);
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_PROTOCOL);
    where.rank = 7; /* there is none */
    forge(&t, where);
    assert_int_equal(umx_outputs_find(t.outputs[1], 0, &info), UMX_ERR_NO_ELEM);
    where      = (umi_outputs_where){.kind     = UMX_OUTPUTS_FILE,
                                     .len      = 100,
                                     .path     = "/nowhere",
                                     .path_len = 8};
    where.rank = 0;
    forge(&t, where);
    assert_int_equal(read_map(&t, &failed, &len), UMX_ERR_STALE_KEY);
    assert_int_equal(failed.trouble, UMX_OUTPUTS_LOST);
    close_two(&t);
}

/* Somebody asks for windows and never gives them back, or again and again. */
static void
test_windows_that_are_not_given_back(void **state)
{
    char                dir[] = "/tmp/umx-outputs-XXXXXX";
    char                path[64];
    umx_outputs_failed  failed;
    umi_outputs_message ask;
    size_t              len, now, most;
    two                 t;

    open_two(&t, *state, UMX_OUTPUTS_READER_FLAG_ELSEWHERE);
    (void)sprintf(path, "%s/map", mkdtemp(dir));
    put_map(&t, path);
    ask = (umi_outputs_message){.kind  = UMI_OUTPUTS_ASK,
                                .from  = t.outputs[1]->id,
                                .epoch = UINT64_C(1) << UMI_OUTPUTS_RANK_BITS,
                                .seq   = 12345};
    umi_outputs_on_ask(t.outputs[0], &ask);
    umx_outputs_mapped(t.outputs[0], &now, &most);
    assert_int_equal(now, 4000 + 8 * (PARTITIONS + 1) < WINDOW ?
                              4000 + 8 * (PARTITIONS + 1) :
                              WINDOW);
    ask.kind = UMI_OUTPUTS_RETURN;
    for (uint64_t window = 0; window < 5; window++) {
        ask.window = window; /* is no number */
        umi_outputs_on_return(t.outputs[0], &ask);
    }
    ask.kind   = UMI_OUTPUTS_ASK;
    ask.offset = 1 << 20; /* beyond the end */
    umi_outputs_on_ask(t.outputs[0], &ask);
    ask.from = 99; /* nobody */
    umi_outputs_on_ask(t.outputs[0], &ask);
    assert_int_equal(read_map(&t, &failed, &len), UMX_OK);
    assert_int_equal(len, 4000);
    umx_outputs_mapped(t.outputs[0], &now, &most);
    assert_in_range(most, 1, WINDOW);
    close_two(&t);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* While a slot of rank 0 is on its way to rank 1, that has committed the map
 * with a higher number, in the same place: the slot of rank 0 lands on the
 * other. */
static void
test_a_late_slot_is_put_again(void **state)
{
    umi_outputs_where         where = {.kind = UMX_OUTPUTS_MEMORY, .rank = 1};
    uint8_t                   place[UMI_OUTPUTS_PLACE] = {0};
    umx_outputs_writer_params params                   = {.map = 0};
    umx_outputs_writer       *writer;
    umx_outputs_info          info;
    job                       j;
    umx_op_params             how = job_params(&j);
    umx_request              *req = NULL;
    size_t                    len;
    two                       t;

    open_two(&t, *state, 0);
    t.w->is_stopped[1] = true;
    assert_int_equal(umx_outputs_writer_create(t.outputs[0], &params, &writer),
                     UMX_OK);
    job_posted(&j, umx_outputs_commit(writer, &how, &req), &req);
    where.epoch = UINT64_C(3) << UMI_OUTPUTS_RANK_BITS | 1;
    len         = umi_outputs_slot_encode(&where, place);
    umi_outputs_table_write(t.outputs[0], 0, where.epoch, place, len);
    umi_outputs_table_write(t.outputs[1], 0, where.epoch, place, len);
    t.w->is_stopped[1] = false;
    assert_int_equal(world_wait_one(t.w, &j), UMX_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(umx_outputs_find(t.outputs[i], 0, &info), UMX_OK);
        assert_int_equal(info.epoch, 3);
        assert_int_equal(info.rank, 1);
    }
    umx_outputs_writer_destroy(writer);
    close_two(&t);
}

static void
test_answers_that_nobody_has_asked_for(void **state)
{
    umi_outputs_message answer = {.kind = UMI_OUTPUTS_ANSWER};
    two                 t;

    random_state = 3;
    open_two(&t, *state, 0);
    for (int i = 0; i < 1000; i++) {
        answer.seq    = (i % 2 == 0) ? next_random(10) : next_random(1 << 30);
        answer.status = (int32_t)next_random(3) - 1;
        umi_outputs_on_answer(t.outputs[1], &answer, "key", 3);
    }
    close_two(&t);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_offsets_that_make_no_sense),
        WORLD_TEST(test_slots_of_noise),
        WORLD_TEST(test_slots_that_are_wrong),
        WORLD_TEST(test_windows_that_are_not_given_back),
        WORLD_TEST(test_answers_that_nobody_has_asked_for),
        {"test_a_late_slot_is_put_again", test_a_late_slot_is_put_again,
         world_setup, world_teardown, (void *)"tcp"},
    };

    return UNIT_RUN(tests);
}
