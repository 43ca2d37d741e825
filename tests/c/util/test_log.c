/* SPDX-License-Identifier: BSD-3-Clause */
/* link: tsan */
/* tests: util/lines */
#include "util/log.h"

#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    THREADS = 4,
    LINES   = 1000
};

typedef struct record {
    int  calls;
    int  level;
    char text[4096];
} record;

static void
keep(int level, const char *text, void *arg)
{
    record *rec = (record *)arg;

    rec->calls++;
    rec->level = level;
    snprintf(rec->text, sizeof(rec->text), "%s", text);
    errno = ERANGE;
}

static int
teardown(void **state)
{
    (void)state;
    umi_log_set_sink(NULL, NULL);
    umi_log_set_level(-1);
    return 0;
}

static void
test_a_sink_gets_every_level(void **state)
{
    record rec = {0};

    (void)state;
    umi_log_set_sink(keep, &rec);
    for (int level = UMI_LOG_ERROR; level <= UMI_LOG_DEBUG; level++) {
        umi_log((umi_log_level)level, "%s %d", "level", level);
        assert_int_equal(rec.calls, level + 1);
        assert_int_equal(rec.level, level);
    }
    assert_string_equal(rec.text, "level 3");
}

static void
test_long_lines_are_cut(void **state)
{
    record rec = {0};
    char   text[3000];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    umi_log_set_sink(keep, &rec);

    umi_log(UMI_LOG_ERROR, "%.1023s", text);
    assert_int_equal(strlen(rec.text), 1023);
    assert_string_equal(rec.text + 1020, "xxx");

    umi_log(UMI_LOG_ERROR, "%.1024s", text);
    assert_int_equal(strlen(rec.text), 1023);
    assert_string_equal(rec.text + 1020, "...");

    umi_log(UMI_LOG_ERROR, "%s", text);
    assert_int_equal(strlen(rec.text), 1023);
    assert_string_equal(rec.text + 1019, "x...");
}

static int
count_calls(int *num_calls)
{
    return ++*num_calls;
}

static void
test_a_line_above_the_level_is_not_made(void **state)
{
    record rec      = {0};
    int    num_made = 0;

    (void)state;
    umi_log_set_sink(keep, &rec);
    umi_log_set_level(UMI_LOG_WARN);
    umi_log(UMI_LOG_INFO, "made %d", count_calls(&num_made));
    assert_int_equal(rec.calls + num_made, 0);
    assert_false(umi_log_is_on(UMI_LOG_INFO));
    umi_log(UMI_LOG_WARN, "made %d", count_calls(&num_made));
    assert_int_equal(rec.calls, 1);

    umi_log_set_level(UMI_LOG_DEBUG + 5);
    assert_true(umi_log_is_on(UMI_LOG_DEBUG));
}

static void
test_a_level_has_a_name_and_is_chosen_once(void **state)
{
    (void)state;
    assert_false(umi_log_name_level("loud"));
    assert_false(umi_log_name_level(""));
    assert_false(umi_log_is_on(UMI_LOG_INFO));
    assert_true(umi_log_name_level("Info"));
    assert_true(umi_log_is_on(UMI_LOG_INFO));
    assert_false(umi_log_is_on(UMI_LOG_DEBUG));

    umi_log_set_level(UMI_LOG_ERROR);
    assert_true(umi_log_name_level("debug"));
    assert_true(umi_log_name_level("loud"));
    assert_false(umi_log_is_on(UMI_LOG_WARN));
}

static void
test_control_characters_are_escaped(void **state)
{
    record rec = {0};
    char   text[1100];

    (void)state;
    umi_log_set_sink(keep, &rec);
    umi_log(UMI_LOG_ERROR, "%s", "a\nb\x1b[1m\x7f \xc3\xa9");
    assert_string_equal(rec.text, "a\\x0ab\\x1b[1m\\x7f \xc3\xa9");

    memset(text, '\n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    umi_log(UMI_LOG_ERROR, "%s", text);
    assert_int_equal(strlen(rec.text), 1023);
    assert_string_equal(rec.text + 1020, "...");
}

static void
test_errno_survives(void **state)
{
    record rec = {0};

    (void)state;
    umi_log_set_sink(keep, &rec);
    errno = ENOENT;
    umi_log(UMI_LOG_ERROR, "line");
    assert_int_equal(errno, ENOENT);
}

static void
log_again(int level, const char *text, void *arg)
{
    (void)level;
    umi_log_set_sink(keep, arg);
    umi_log(UMI_LOG_INFO, "seen: %s", text);
}

static void
test_a_sink_may_log_and_set_a_sink(void **state)
{
    record rec = {0};

    (void)state;
    umi_log_set_sink(log_again, &rec);
    umi_log(UMI_LOG_ERROR, "line");
    assert_int_equal(rec.calls, 1);
    assert_string_equal(rec.text, "seen: line");
}

/* Log one line of each level with standard error led into a file. */
static void
log_to_stderr(char *text, size_t size)
{
    FILE  *file  = tmpfile();
    int    saved = dup(STDERR_FILENO);
    size_t len;

    assert_non_null(file);
    assert_true(saved >= 0);
    fflush(stderr);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    umi_log(UMI_LOG_ERROR, "number %d", 1);
    umi_log(UMI_LOG_WARN, "number %d", 2);
    umi_log(UMI_LOG_INFO, "number %d", 3);
    umi_log(UMI_LOG_DEBUG, "number %d", 4);
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);

    rewind(file);
    len       = fread(text, 1, size - 1, file);
    text[len] = '\0';
    fclose(file);
}

static void
test_standard_error_by_default(void **state)
{
    record rec = {0};
    char   text[256];

    (void)state;
    umi_log_set_sink(keep, &rec);
    umi_log_set_sink(NULL, NULL);
    log_to_stderr(text, sizeof(text));
    assert_int_equal(rec.calls, 0);
    assert_string_equal(text, "libumx: error: number 1\n"
                              "libumx: warning: number 2\n");
}

/* Each sink has its own argument; the wrong pair would not be equal. */
static void
expect_a(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    if (strcmp((const char *)arg, "a") != 0) {
        _exit(1);
    }
}

static void
expect_b(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    if (strcmp((const char *)arg, "b") != 0) {
        _exit(1);
    }
}

static void *
log_lines(void *arg)
{
    (void)arg;
    for (int i = 0; i < LINES; i++) {
        assert_true(umi_log_name_level("debug"));
        umi_log(UMI_LOG_DEBUG, "line %d", i);
    }
    return NULL;
}

static void
test_sink_and_argument_belong_together(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    umi_log_set_sink(expect_a, "a");
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, NULL), 0);
    }
    for (int i = 0; i < LINES; i++) {
        umi_log_set_sink(expect_b, "b");
        umi_log_set_level(UMI_LOG_DEBUG);
        umi_log_set_sink(expect_a, "a");
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_sink_gets_every_level, teardown),
        cmocka_unit_test_teardown(test_long_lines_are_cut, teardown),
        cmocka_unit_test_teardown(test_a_line_above_the_level_is_not_made,
                                  teardown),
        cmocka_unit_test_teardown(test_a_level_has_a_name_and_is_chosen_once,
                                  teardown),
        cmocka_unit_test_teardown(test_control_characters_are_escaped,
                                  teardown),
        cmocka_unit_test_teardown(test_errno_survives, teardown),
        cmocka_unit_test_teardown(test_a_sink_may_log_and_set_a_sink, teardown),
        cmocka_unit_test_teardown(test_standard_error_by_default, teardown),
        cmocka_unit_test_teardown(test_sink_and_argument_belong_together,
                                  teardown),
    };

    return UNIT_RUN(tests);
}
