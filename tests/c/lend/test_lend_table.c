/* SPDX-License-Identifier: BSD-3-Clause */
/* link: wrap=process_vm_readv wrap=umi_random_bytes wrap=calloc wrap=malloc */
/* tests: lend/loans */
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lend/loans.h"
#include "mem/copy.h"
#include "util/hash.h"

enum {
    SIZE = 10000,
    LONG = 200000 /* is read in several parts if it is staged */
};

/* ---- the system ----------------------------------------------------------
 */

static struct {
    bool   has_no_memory;
    bool   has_no_random;
    size_t limit;               /* bytes that one call reads; 0: all */
    void (*before_bytes)(void); /* called between the two readings; or NULL */
    unsigned num_calls;
} sys;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
bool  __real_umi_random_bytes(void *data, size_t len);
bool  __wrap_umi_random_bytes(void *data, size_t len);

void *
__wrap_calloc(size_t count, size_t size)
{
    return sys.has_no_memory ? NULL : __real_calloc(count, size);
}

void *
__wrap_malloc(size_t size)
{
    return sys.has_no_memory ? NULL : __real_malloc(size);
}

bool
__wrap_umi_random_bytes(void *data, size_t len)
{
    return !sys.has_no_random && __real_umi_random_bytes(data, len);
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long       num_local,
                                const struct iovec *remote,
                                unsigned long num_remote, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long       num_local,
                                const struct iovec *remote,
                                unsigned long num_remote, unsigned long flags);

ssize_t
__wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                        unsigned long num_local, const struct iovec *remote,
                        unsigned long num_remote, unsigned long flags)
{
    struct iovec part;

    sys.num_calls++;
    if (num_remote == 2 && sys.before_bytes != NULL) {
        sys.before_bytes();
    }
    if (sys.limit == 0 || remote[0].iov_len <= sys.limit) {
        return __real_process_vm_readv(pid, local, num_local, remote,
                                       num_remote, flags);
    }
    part = (struct iovec){local[0].iov_base, sys.limit};
    return __real_process_vm_readv(pid, &part, 1, remote, 1, flags);
}

/* ---- a table, and who reads it -------------------------------------------
 */

static umi_lend_table *table;
static umi_lend_source source;
static char            lent[SIZE], copy[SIZE];
static umi_lend_loan   loan; /* of all of `lent` */

static void
lend(void)
{
    assert_true(umi_lend_table_add(table, lent, SIZE, lent, &loan));
}

/* Containers may forbid the system call. */
static void
need_reading(void)
{
    if (!umi_lend_source_is_readable(&source)) {
        skip();
    }
}

static int
setup(void **state)
{
    (void)state;
    memset(&sys, 0, sizeof(sys));
    memset(lent, 'a', SIZE);
    memset(copy, 0, SIZE);
    table = umi_lend_table_new();
    assert_non_null(table);
    source = (umi_lend_source){.pid     = getpid(),
                               .address = (uintptr_t)table->slots,
                               .size    = UMI_LEND_SLOTS};
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    umi_lend_table_end(table);
    return 0;
}

/* ---- lending -------------------------------------------------------------
 */

static void
test_an_id_is_never_used_again(void **state)
{
    uint64_t last = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        lend();
        assert_true(loan.id > last);
        last = loan.id;
        umi_lend_table_remove(table, loan.slot);
    }
}

static void
test_the_first_id_is_random(void **state)
{
    umi_lend_table *other = umi_lend_table_new();
    umi_lend_loan   first;

    (void)state;
    assert_non_null(other);
    lend();
    assert_true(umi_lend_table_add(other, lent, SIZE, lent, &first));
    assert_int_not_equal(loan.id, first.id);
    umi_lend_table_remove(table, loan.slot);
    umi_lend_table_remove(other, first.slot);
    umi_lend_table_end(other);
}

static void
test_a_full_table_takes_no_more(void **state)
{
    umi_lend_loan all[UMI_LEND_SLOTS];

    (void)state;
    for (int i = 0; i < UMI_LEND_SLOTS; i++) {
        assert_true(umi_lend_table_add(table, lent, SIZE, &all[i], &all[i]));
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(all[j].slot, all[i].slot);
        }
    }
    assert_false(umi_lend_table_add(table, lent, SIZE, &loan, &loan));
    for (int i = 0; i < UMI_LEND_SLOTS; i++) {
        assert_ptr_equal(umi_lend_table_find(table, all[i].slot, all[i].id),
                         &all[i]);
        umi_lend_table_remove(table, all[i].slot);
    }
    lend();
    umi_lend_table_remove(table, loan.slot);
}

static void
test_a_loan_is_found_by_slot_and_id(void **state)
{
    (void)state;
    lend();
    assert_ptr_equal(umi_lend_table_find(table, loan.slot, loan.id), lent);
    assert_null(umi_lend_table_find(table, loan.slot, loan.id + 1));
    assert_null(umi_lend_table_find(table, loan.slot ^ 1, loan.id));
    assert_null(umi_lend_table_find(table, UMI_LEND_SLOTS, loan.id));
    umi_lend_table_remove(table, loan.slot);
    assert_null(umi_lend_table_find(table, loan.slot, loan.id));
    assert_null(umi_lend_table_find(table, loan.slot, 0));
}

static void
test_a_table_that_is_over_goes_with_its_last_loan(void **state)
{
    umi_lend_table *other = umi_lend_table_new();
    umi_lend_loan   first, second;

    (void)state;
    assert_non_null(other);
    assert_true(umi_lend_table_add(other, lent, SIZE, lent, &first));
    assert_true(umi_lend_table_add(other, lent, SIZE, lent, &second));
    umi_lend_table_end(other);
    umi_lend_table_remove(other, first.slot);
    assert_ptr_equal(umi_lend_table_find(other, second.slot, second.id), lent);
    umi_lend_table_remove(other, second.slot); /* a slot that stays leaks */
}

static void
test_no_table_without_memory_or_random_bytes(void **state)
{
    (void)state;
    sys.has_no_memory = true;
    assert_null(umi_lend_table_new());
    sys.has_no_memory = false;
    sys.has_no_random = true;
    assert_null(umi_lend_table_new());
}

/* ---- reading -------------------------------------------------------------
 */

/* True if `copy` has what is lent. */
static bool
reads(const umi_lend_loan *name)
{
    return umi_lend_source_read(&source, name, copy) == UMI_LEND_READ;
}

static void
test_what_is_lent_can_be_read(void **state)
{
    (void)state;
    need_reading();
    lend();
    assert_true(reads(&loan));
    assert_memory_equal(copy, lent, SIZE);
    umi_lend_table_remove(table, loan.slot);
}

static void
test_the_system_may_read_in_parts(void **state)
{
    (void)state;
    need_reading();
    lend();
    sys.limit = 999;
    for (int i = 0; i < SIZE; i++) {
        lent[i] = (char)(i * 7);
    }
    assert_true(reads(&loan));
    assert_memory_equal(copy, lent, SIZE);
    umi_lend_table_remove(table, loan.slot);
}

/* Read what lies so that the processor would take long for it. */
static void
read_staged(size_t limit, bool has_memory)
{
    char *from = malloc(LONG + UMI_COPY_PAGE);
    char *to   = malloc(LONG + 2 * UMI_COPY_PAGE);
    char *there;

    assert_non_null(from);
    assert_non_null(to);
    there = to + ((uintptr_t)from + 16 - (uintptr_t)to) % UMI_COPY_PAGE;
    assert_true(umi_copy_is_slow(there, from));
    for (size_t i = 0; i < LONG; i++) {
        from[i] = (char)(i * 7 + i / 251);
    }
    memset(there, 0, LONG + 1);
    assert_true(umi_lend_table_add(table, from, LONG, from, &loan));
    sys.limit         = limit;
    sys.has_no_memory = !has_memory;
    assert_int_equal(umi_lend_source_read(&source, &loan, there),
                     UMI_LEND_READ);
    sys.has_no_memory = false;
    sys.limit         = 0;
    assert_memory_equal(there, from, LONG);
    assert_int_equal(there[LONG], 0);
    umi_lend_table_remove(table, loan.slot);
    free(from);
    free(to);
}

static void
test_what_is_slow_to_read_goes_by_memory_between(void **state)
{
    (void)state;
    need_reading();
    sys.num_calls = 0;
    read_staged(0, true);
    assert_true(sys.num_calls > 3);
    read_staged(999, true);
}

static void
test_without_memory_between_it_is_read_at_once(void **state)
{
    (void)state;
    need_reading();
    sys.num_calls = 0;
    read_staged(0, false);
    assert_int_equal(sys.num_calls, 2);
}

static void
test_what_is_not_in_the_table_is_not_read(void **state)
{
    umi_lend_loan lies[4];

    (void)state;
    need_reading();
    lend();
    lies[0] = lies[1] = lies[2] = lies[3] = loan;
    lies[0].id++;
    lies[1].len--;
    lies[2].slot ^= 1;
    lies[3].slot = UINT32_MAX;
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        assert_false(reads(&lies[i]));
        assert_int_equal(copy[0], 0);
    }
    umi_lend_table_remove(table, loan.slot);
}

/* A free slot shows the place and the length of what was lent last. */
static void
test_what_was_lent_is_not_read(void **state)
{
    (void)state;
    need_reading();
    lend();
    umi_lend_table_remove(table, loan.slot);
    assert_false(reads(&loan));
    loan.id = 0;
    assert_false(reads(&loan));
    assert_int_equal(copy[0], 0);
}

/* Behind the table lies what somebody has put there. */
static void
test_a_slot_beyond_the_table_is_not_looked_at(void **state)
{
    (void)state;
    need_reading();
    source.size = 4;
    loan        = (umi_lend_loan){.id = 5, .len = SIZE, .slot = 4};
    atomic_store(&table->slots[4].id, 5);
    atomic_store(&table->slots[4].address, (uintptr_t)lent);
    atomic_store(&table->slots[4].len, SIZE);
    sys.num_calls = 0;
    assert_false(reads(&loan));
    assert_int_equal(sys.num_calls, 0);
    loan.slot   = 3;
    source.size = 0; /* of nobody */
    assert_false(reads(&loan));
    assert_int_equal(sys.num_calls, 0);
}

static void
end_it(void)
{
    umi_lend_table_remove(table, loan.slot);
    memset(lent, 'b', SIZE);
}

static void
end_it_and_lend_again(void)
{
    umi_lend_loan other;

    sys.before_bytes = NULL;
    end_it();
    assert_true(umi_lend_table_add(table, lent, SIZE, lent, &other));
    assert_int_equal(other.slot, loan.slot);
}

static void
test_a_loan_that_ends_while_it_is_read_is_refused(void **state)
{
    (void)state;
    need_reading();
    lend();
    sys.before_bytes = end_it;
    assert_false(reads(&loan));
}

static void
test_a_slot_that_is_used_again_while_it_is_read_is_refused(void **state)
{
    (void)state;
    need_reading();
    lend();
    sys.before_bytes = end_it_and_lend_again;
    assert_false(reads(&loan));
    umi_lend_table_remove(table, loan.slot);
}

static void
test_memory_that_is_gone_is_not_read(void **state)
{
    void *nowhere = (void *)sysconf(_SC_PAGESIZE); /* nothing is mapped there */

    (void)state;
    need_reading();
    assert_true(umi_lend_table_add(table, nowhere, SIZE, lent, &loan));
    assert_false(reads(&loan));
    umi_lend_table_remove(table, loan.slot);
}

static void
test_a_process_that_is_gone_cannot_be_read(void **state)
{
    (void)state;
    need_reading();
    lend();
    source.pid = -1;
    assert_false(umi_lend_source_is_readable(&source));
    assert_false(reads(&loan));
    umi_lend_table_remove(table, loan.slot);
}

static void
test_a_table_without_slots_is_none(void **state)
{
    (void)state;
    source.size = 0;
    assert_false(umi_lend_source_is_readable(&source));
}

/* ---- both at a time ------------------------------------------------------
 */

enum {
    ROUNDS = 20000
};

static struct {
    pthread_mutex_t lock; /* of the message that names the loan */
    umi_lend_loan   loan;
    char            value;
    bool            is_over;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* False once the reader has seen enough. */
static bool
tell(const umi_lend_loan *name, char value)
{
    bool is_over;

    pthread_mutex_lock(&told.lock);
    told.loan  = *name;
    told.value = value;
    is_over    = told.is_over;
    pthread_mutex_unlock(&told.lock);
    return !is_over;
}

static void
hear(umi_lend_loan *name, char *value, bool is_over)
{
    pthread_mutex_lock(&told.lock);
    *name        = told.loan;
    *value       = told.value;
    told.is_over = is_over;
    pthread_mutex_unlock(&told.lock);
}

/* Lend, and take back at any point of the reading; write into it at once. */
static void *
run_lender(void *arg)
{
    umi_lend_loan name;
    bool          goes_on = true;

    (void)arg;
    for (unsigned i = 0; goes_on; i++) {
        memset(lent, (int)i, SIZE);
        if (!umi_lend_table_add(table, lent, SIZE, lent, &name)) {
            abort();
        }
        goes_on = tell(&name, (char)i);
        for (volatile unsigned left = i * 37 % 3000; left > 0; left--) {
        }
        umi_lend_table_remove(table, name.slot);
    }
    return NULL;
}

/* The slot is the same each time. */
static void
test_what_is_read_is_whole_or_refused(void **state)
{
    pthread_t     lender;
    umi_lend_loan name;
    char          value;
    unsigned      num_read = 0, num_refused = 0;

    (void)state;
    need_reading();
    assert_int_equal(pthread_create(&lender, NULL, run_lender, NULL), 0);
    while (num_read + num_refused < ROUNDS || num_read == 0 ||
           num_refused == 0) {
        hear(&name, &value, false);
        if (!reads(&name)) {
            num_refused++;
            continue;
        }
        num_read++;
        for (size_t i = 0; i < SIZE; i++) {
            assert_int_equal(copy[i], value);
        }
    }
    hear(&name, &value, true);
    assert_int_equal(pthread_join(lender, NULL), 0);
}

int
main(void)
{
#define TEST(f)                      \
    {                                \
#f, f, setup, teardown, NULL \
    }
    const struct CMUnitTest tests[] = {
        TEST(test_an_id_is_never_used_again),
        TEST(test_the_first_id_is_random),
        TEST(test_a_full_table_takes_no_more),
        TEST(test_a_loan_is_found_by_slot_and_id),
        TEST(test_a_table_that_is_over_goes_with_its_last_loan),
        TEST(test_no_table_without_memory_or_random_bytes),
        TEST(test_what_is_lent_can_be_read),
        TEST(test_the_system_may_read_in_parts),
        TEST(test_what_is_slow_to_read_goes_by_memory_between),
        TEST(test_without_memory_between_it_is_read_at_once),
        TEST(test_what_is_not_in_the_table_is_not_read),
        TEST(test_what_was_lent_is_not_read),
        TEST(test_a_slot_beyond_the_table_is_not_looked_at),
        TEST(test_a_loan_that_ends_while_it_is_read_is_refused),
        TEST(test_a_slot_that_is_used_again_while_it_is_read_is_refused),
        TEST(test_memory_that_is_gone_is_not_read),
        TEST(test_a_process_that_is_gone_cannot_be_read),
        TEST(test_a_table_without_slots_is_none),
        TEST(test_what_is_read_is_whole_or_refused),
    };

    return UNIT_RUN(tests);
}
