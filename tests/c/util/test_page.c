/* SPDX-License-Identifier: BSD-3-Clause */
/* link: tsan */
#include "util/page.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

enum {
    THREADS = 4,
    ROUNDS  = 50,
    MANY    = UMI_PAGE_SLOTS + 3
};

/* The descriptor of the file; -1: there is none. */
static int
find_file(void)
{
    char target[64];
    char path[32];

    for (int fd = 0; fd < 256; fd++) {
        ssize_t len;

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        len = readlink(path, target, sizeof(target) - 1);
        if (len > 0) {
            target[len] = '\0';
            if (strstr(target, "memfd:" UMI_PAGE_NAME) != NULL) {
                return fd;
            }
        }
    }
    return -1;
}

static size_t
count_workers(void)
{
    return umi_page_read(NULL, 0);
}

static void
test_others_read_what_the_owner_writes(void **state)
{
    umi_page_slot         *slot = umi_page_take();
    const umi_page_header *header;
    const umi_page_slot   *seen;

    (void)state;
    assert_non_null(slot);
    header = mmap(NULL, UMI_PAGE_HEADER_SIZE + UMI_PAGE_SLOT_SIZE, PROT_READ,
                  MAP_SHARED, find_file(), 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    assert_memory_equal(header->magic, "ucpstats", 8);
    assert_int_equal(header->pid, getpid());
    seen = (const void *)((const char *)header + header->header_size);
    slot->stats.loans++;
    assert_int_equal(seen->turn, 1);
    assert_int_equal(seen->stats.loans, 1);
    umi_page_give_back(slot);
    assert_int_equal(seen->turn, 2);
    munmap((void *)(uintptr_t)header,
           UMI_PAGE_HEADER_SIZE + UMI_PAGE_SLOT_SIZE);
    assert_int_equal(find_file(), -1);
}

/* The names in the header, and the numbers of a slot. */
static void
test_each_number_has_a_name(void **state)
{
    umi_page_slot   *slot   = umi_page_take();
    umi_page_header *header = mmap(NULL, UMI_PAGE_HEADER_SIZE, PROT_READ,
                                   MAP_SHARED, find_file(), 0);
    size_t           n      = 1;

    (void)state;
    assert_ptr_not_equal(header, MAP_FAILED);
    for (const char *c = header->names; *c != '\0'; c++) {
        n += *c == ',';
    }
    /* The last is that of a text. */
    assert_int_equal((n - 1) * sizeof(uint64_t),
                     offsetof(umi_page_slot, communicator) -
                         sizeof(slot->turn));
    munmap(header, UMI_PAGE_HEADER_SIZE);
    umi_page_give_back(slot);
}

static void
test_a_slot_is_used_again_with_zeros(void **state)
{
    umi_page_slot     *first  = umi_page_take();
    umi_page_slot     *second = umi_page_take();
    uint64_t           number = second->number;
    umx_worker_numbers numbers[2];

    (void)state;
    first->stats.spins  = 5;
    second->stats.spins = 7;
    umi_page_give_back(first);
    first = umi_page_take();
    assert_int_equal(first->number, number + 1);
    assert_int_equal(umi_page_read(numbers, 2), 2);
    assert_int_equal(numbers[0].stats.spins, 0);
    assert_int_equal(numbers[1].stats.spins, 7);
    assert_int_equal(umi_page_read(numbers, 1), 2);
    umi_page_give_back(first);
    umi_page_give_back(second);
    assert_int_equal(count_workers(), 0);
}

static void
test_a_rank_is_told_until_its_slot_is_another_workers(void **state)
{
    char               name[101];
    umi_page_slot     *first  = umi_page_take();
    umi_page_slot     *second = umi_page_take();
    umx_worker_numbers numbers[2];

    (void)state;
    memset(name, 'n', 100);
    name[100] = '\0';
    umi_page_set_rank(first, "world", 2, 4);
    umi_page_set_rank(second, name, 0, 1);
    assert_int_equal(umi_page_read(numbers, 2), 2);
    assert_int_equal(numbers[0].rank, 2);
    assert_int_equal(numbers[0].num_ranks, 4);
    assert_string_equal(numbers[0].communicator, "world");
    assert_int_equal(strlen(numbers[1].communicator), 63);
    umi_page_give_back(first);
    first = umi_page_take();
    assert_int_equal(umi_page_read(numbers, 2), 2);
    assert_int_equal(numbers[0].num_ranks, 0);
    assert_string_equal(numbers[0].communicator, "");
    umi_page_give_back(first);
    umi_page_give_back(second);
}

static void
test_more_workers_than_slots_are_counted(void **state)
{
    umi_page_slot *slots[MANY];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        slots[i] = umi_page_take();
        assert_non_null(slots[i]);
    }
    assert_int_equal(count_workers(), MANY);
    for (int i = 0; i < MANY; i++) {
        umi_page_give_back(slots[i]);
    }
    assert_int_equal(count_workers(), 0);
    assert_int_equal(find_file(), -1);
}

static void
test_without_a_file_slots_are_memory(void **state)
{
    umi_page_slot *slot;

    (void)state;
    setenv("UCP_STATS", "0", 1);
    slot = umi_page_take();
    unsetenv("UCP_STATS");
    assert_int_equal(find_file(), -1);
    assert_int_equal(count_workers(), 1);
    umi_page_give_back(slot);
    assert_int_equal(count_workers(), 0);
}

static pid_t (*volatile real_fork)(void) = fork;

static void
run_child(umi_page_slot *parents)
{
    umi_page_slot *slot;

    parents->stats.loans = 99; /* into memory of its own */
    if (find_file() >= 0 || count_workers() != 0) {
        _exit(1);
    }
    slot = umi_page_take();
    if (slot == NULL || find_file() < 0 || count_workers() != 1) {
        _exit(2);
    }
    umi_page_give_back(slot);
    _exit(0);
}

static void
test_a_child_has_a_file_of_its_own(void **state)
{
    umi_page_slot *slot = umi_page_take();
    int            status;
    pid_t          pid;

    (void)state;
    slot->stats.loans = 3;
    pid               = real_fork();
    if (pid == 0) {
        run_child(slot);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(slot->stats.loans, 3);
    umi_page_give_back(slot);
}

/* A program that closes all descriptors, and opens others. */
static void
test_a_descriptor_of_the_programs_is_left_alone(void **state)
{
    umi_page_slot *slot = umi_page_take();
    int            fd   = find_file();

    (void)state;
    close(fd);
    assert_int_equal(open("/dev/null", O_RDONLY), fd);
    umi_page_give_back(slot);
    assert_int_equal(fcntl(fd, F_GETFD), 0);
    close(fd);
}

static void *
take_and_give(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        umi_page_slot     *slot = umi_page_take();
        umx_worker_numbers numbers[THREADS];

        slot->stats.loans = 1;
        *(size_t *)arg += umi_page_read(numbers, THREADS);
        umi_page_give_back(slot);
    }
    return NULL;
}

static void
test_threads_take_slots_at_once(void **state)
{
    pthread_t threads[THREADS];
    size_t    seen[THREADS] = {0};

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, take_and_give, &seen[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_in_range(seen[i], ROUNDS, ROUNDS * THREADS);
    }
    assert_int_equal(count_workers(), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_read_what_the_owner_writes),
        cmocka_unit_test(test_each_number_has_a_name),
        cmocka_unit_test(test_a_slot_is_used_again_with_zeros),
        cmocka_unit_test(test_a_rank_is_told_until_its_slot_is_another_workers),
        cmocka_unit_test(test_more_workers_than_slots_are_counted),
        cmocka_unit_test(test_without_a_file_slots_are_memory),
        cmocka_unit_test(test_a_child_has_a_file_of_its_own),
        cmocka_unit_test(test_a_descriptor_of_the_programs_is_left_alone),
        cmocka_unit_test(test_threads_take_slots_at_once),
    };

    return UNIT_RUN(tests);
}
