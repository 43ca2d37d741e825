/* SPDX-License-Identifier: BSD-3-Clause */
/* How many processors a process has. cpu.c is part of this file, which gives it
 * files of its own. */
#include "util/cpu.c"

#include "unit.h"

#include <stdlib.h>
#include <sys/stat.h>

/* A folder that stands for /sys/fs/cgroup, and the process's own file. */
static char folder[] = "/tmp/umx-cpu-XXXXXX";
static char self[sizeof(folder) + 16];

static void
write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void
write_quota(const char *group, const char *text)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s%s/cpu.max", folder, group);
    write_file(path, text);
}

static int
setup(void **state)
{
    char path[PATH_MAX];

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(self, sizeof(self), "%s/self", folder);
    (void)snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/a/b", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    return 0;
}

static int
teardown(void **state)
{
    static const char *const names[] = {
        "a/b/cpu.max", "a/b", "a/cpu.max", "a", "self", "cpu.max", ""};
    char path[PATH_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)remove(path);
    }
    return 0;
}

static void
test_the_least_quota_of_all_groups_above_counts(void **state)
{
    (void)state;
    write_file(self, "4:cpu:/elsewhere\n0::/a/b\n");
    assert_int_equal(least_quota(self, folder), UINT_MAX);
    write_quota("/a/b", "max 100000\n");
    assert_int_equal(least_quota(self, folder), UINT_MAX);
    write_quota("/a", "350000 100000\n");
    assert_int_equal(least_quota(self, folder), 3);
    write_quota("/a/b", "50000 100000\n");
    assert_int_equal(least_quota(self, folder), 0);
    write_file(self, "0::/\n"); /* as in a namespace of control groups */
    assert_int_equal(least_quota(self, folder), UINT_MAX);
    write_quota("", "200000 100000\n");
    assert_int_equal(least_quota(self, folder), 2);
}

static void
test_files_that_make_no_sense_are_no_limit(void **state)
{
    static const char *const texts[] = {"",    "max\n",          "100000\n",
                                        "1 0", "x y\n",          "-1 1\n",
                                        "max", "99999999999 1\n"};

    (void)state;
    write_quota("", "max 100000\n");
    write_file(self, "0::/a\n");
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        write_quota("/a", texts[i]);
        assert_int_equal(least_quota(self, folder), UINT_MAX);
    }
    write_file(self, "1:name=systemd:/a\n"); /* version 1 */
    assert_int_equal(least_quota(self, folder), UINT_MAX);
    write_file(self, "0::/a"); /* cut short */
    assert_int_equal(least_quota(self, folder), UINT_MAX);
    (void)remove(self);
    assert_int_equal(least_quota(self, folder), UINT_MAX);
}

static void
test_a_mask_counts_unless_it_has_one_processor(void **state)
{
    cpu_set_t before, set;
    int       added = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE && added < 2; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &set);
            assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
            assert_int_equal(count_mask(), (++added == 1) ? 0 : 2);
            assert_true(umi_cpu_count() >= 1);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_quota_of_all_groups_above_counts),
        cmocka_unit_test(test_files_that_make_no_sense_are_no_limit),
        cmocka_unit_test(test_a_mask_counts_unless_it_has_one_processor),
    };

    return UNIT_RUN_ONCE(tests, setup, teardown);
}
