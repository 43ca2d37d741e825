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

/* ---- hosts ---------------------------------------------------------------
 */

static umx_worker_stats
traffic_of(const umi_page_slot *slot)
{
    umx_worker_stats stats = {0};

    umi_page_add_traffic(slot, &stats);
    return stats;
}

static void
test_the_traffic_of_a_worker_is_that_of_all_hosts(void **state)
{
    umi_page_slot     *first  = umi_page_take();
    umi_page_slot     *second = umi_page_take();
    umi_page_host     *host   = umi_page_host_of(first, "localhost");
    umx_worker_numbers numbers[2];

    (void)state;
    host->traffic                                = (umi_traffic){1, 10, 2, 20};
    umi_page_host_of(first, "10.0.0.2")->traffic = (umi_traffic){3, 30, 4, 40};
    umi_page_host_of(second, "localhost")->traffic = (umi_traffic){9, 9, 9, 9};
    first->others = (umi_traffic){5, 50, 6, 60};
    assert_ptr_equal(umi_page_host_of(first, "localhost"), host);
    assert_int_equal(traffic_of(first).sent_messages, 9);
    assert_int_equal(traffic_of(first).sent_bytes, 90);
    assert_int_equal(traffic_of(first).received_messages, 12);
    assert_int_equal(umi_page_read(numbers, 2), 2);
    assert_int_equal(numbers[0].stats.received_bytes, 120);
    assert_int_equal(numbers[1].stats.received_bytes, 9);
    umi_page_give_back(first);
    first = umi_page_take();
    assert_int_equal(traffic_of(first).sent_bytes, 0);
    umi_page_give_back(first);
    umi_page_give_back(second);
}

static void
test_others_read_the_rows_of_hosts(void **state)
{
    umi_page_slot         *slot = umi_page_take();
    umi_page_host         *host = umi_page_host_of(slot, "::1");
    const umi_page_header *header;
    const umi_page_host   *seen;
    size_t                 size = 2u << 20;

    (void)state;
    header = mmap(NULL, size, PROT_READ, MAP_SHARED, find_file(), 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    assert_int_equal(header->host_size, sizeof(*seen));
    assert_int_equal(header->num_hosts, UMI_PAGE_HOSTS);
    seen = (const void *)((const char *)header + header->hosts_offset);
    host->traffic.sent_bytes = 7;
    assert_int_equal(seen->turn, 1);
    assert_int_equal(seen->worker, slot->number);
    assert_int_equal(seen->traffic.sent_bytes, 7);
    assert_string_equal(seen->name, "::1");
    umi_page_give_back(slot);
    assert_int_equal(seen->turn, 2);
    munmap((void *)(uintptr_t)header, size);
}

static umi_page_host *
numbered_host(umi_page_slot *slot, int number)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "10.0.0.%d", number);
    return umi_page_host_of(slot, name);
}

static void
test_rows_of_hosts_are_bounded(void **state)
{
    enum {
        WORKERS = UMI_PAGE_HOSTS / UMI_PAGE_HOSTS_MAX + 1
    };
    umi_page_slot *slots[WORKERS];
    int            num_rows = 0;

    (void)state;
    for (int i = 0; i < WORKERS; i++) {
        slots[i] = umi_page_take();
        for (int host = 0; host < UMI_PAGE_HOSTS_MAX; host++) {
            num_rows += numbered_host(slots[i], host) != NULL;
        }
        assert_null(numbered_host(slots[i], UMI_PAGE_HOSTS_MAX));
    }
    assert_int_equal(num_rows, UMI_PAGE_HOSTS);
    assert_non_null(numbered_host(slots[0], 1));
    umi_page_give_back(slots[0]);
    assert_non_null(numbered_host(slots[WORKERS - 1], UMI_PAGE_HOSTS_MAX - 1));
    for (int i = 1; i < WORKERS; i++) {
        umi_page_give_back(slots[i]);
    }
}

static void
test_each_transport_is_noted_once(void **state)
{
    umi_page_slot *slot = umi_page_take();
    umi_page_host *host = umi_page_host_of(slot, "localhost");
    char           longest[sizeof(host->transports)];

    (void)state;
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    umi_page_host_add_transport(host, "rc_tcp");
    umi_page_host_add_transport(host, "tcp");
    umi_page_host_add_transport(host, "");
    umi_page_host_add_transport(host, "rc_tcp");
    umi_page_host_add_transport(host, "tcp");
    umi_page_host_add_transport(host, "rc");
    umi_page_host_add_transport(host, longest); /* there is no room for it */
    assert_string_equal(host->transports, "rc_tcp,tcp,rc");
    umi_page_give_back(slot);
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
    assert_null(umi_page_host_of(slot, "localhost"));
    slot->others.sent_bytes = 4;
    assert_int_equal(traffic_of(slot).sent_bytes, 4);
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
        cmocka_unit_test(test_the_traffic_of_a_worker_is_that_of_all_hosts),
        cmocka_unit_test(test_others_read_the_rows_of_hosts),
        cmocka_unit_test(test_rows_of_hosts_are_bounded),
        cmocka_unit_test(test_each_transport_is_noted_once),
        cmocka_unit_test(test_without_a_file_slots_are_memory),
        cmocka_unit_test(test_a_child_has_a_file_of_its_own),
        cmocka_unit_test(test_a_descriptor_of_the_programs_is_left_alone),
        cmocka_unit_test(test_threads_take_slots_at_once),
    };

    return UNIT_RUN(tests);
}
