/* SPDX-License-Identifier: BSD-3-Clause */
/* link: optimised */
/* tests: host/config host/thread_limit */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <umx/umx.h>

#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "host/config.h"
#include "keys/context.h"
#include "keys/memh.h"
#include "worker/worker.h"

static umx_status
create(const umx_option *options, size_t count, uint64_t flags,
       umx_context **context_p, int *bad_p)
{
    umx_context_params params = {
        .field_mask  = UMX_CONTEXT_FIELD_OPTIONS | UMX_CONTEXT_FIELD_FLAGS,
        .options     = options,
        .num_options = count,
        .flags       = flags,
    };

    return umx_context_create(&params, context_p, bad_p);
}

/* UCX 1.13: takes any key, and warns later. */
static bool
is_old_ucx(void)
{
    unsigned major, minor, release;

    umx_ucx_version(&major, &minor, &release);
    return minor < 14;
}

typedef struct lookup {
    const char *key;
    char        value[64];
    int         found;
} lookup;

static void
look(const char *key, const char *value, void *arg)
{
    lookup *l = arg;

    if (strcmp(key, l->key) == 0) {
        l->found++;
        snprintf(l->value, sizeof(l->value), "%s", value);
    }
}

/* Look up the value that UCX would use for `key`; the test fails if no option
 * has that name. */
static lookup
value_of(const char *key, const umx_option *options, size_t count,
         uint64_t flags)
{
    umx_context_params params = {
        .field_mask  = UMX_CONTEXT_FIELD_OPTIONS | UMX_CONTEXT_FIELD_FLAGS,
        .options     = options,
        .num_options = count,
        .flags       = flags,
    };
    lookup l = {.key = key};
    int    bad;

    assert_int_equal(umx_context_options(&params, look, &l, &bad), UMX_OK);
    assert_int_equal(bad, -1);
    assert_int_equal(l.found, 1);
    return l;
}

static void
test_defaults(void **state)
{
    umx_context      *context;
    umx_config        config;
    const umx_config *used;
    char             *text;
    int               bad = 7;

    (void)state;
    assert_int_equal(umx_context_create(NULL, &context, &bad), UMX_OK);
    assert_int_equal(bad, -1);
    umx_config_default(&config);
    used = umx_context_config(context);
    assert_memory_equal(used, &config, sizeof(config));
    assert_non_null(umx_context_handle(context));
    assert_int_equal(umx_context_info(context, &text), UMX_OK);
    assert_true(strlen(text) > 0);
    free(text);
    umx_context_release(context);
}

static void
test_references(void **state)
{
    umx_context *context;

    (void)state;
    assert_int_equal(umx_context_create(NULL, &context, NULL), UMX_OK);
    umi_context_hold(context);
    umx_context_release(context);
    assert_non_null(umx_context_handle(context));
    umx_context_release(context);
}

/* What is of the old context of UCX lives on. */
static void
test_ucx_is_begun_anew(void **state)
{
    char           data[64];
    umx_buffer     buf = umx_host_buffer(data, sizeof(data));
    umx_context   *context;
    umx_worker    *worker;
    umx_memh      *before, *after;
    const umi_ucx *old;
    char          *text;

    (void)state;
    assert_int_equal(umx_context_create(NULL, &context, NULL), UMX_OK);
    assert_int_equal(umx_worker_create(context, &worker), UMX_OK);
    assert_int_equal(umx_memh_register(context, &buf, NULL, &before), UMX_OK);
    old = worker->engine->ucx;
    assert_true(umi_context_is_newest(context, old));
    assert_int_equal(umi_context_renew(context, old), UMX_OK);
    assert_false(umi_context_is_newest(context, old));
    assert_ptr_equal(worker->engine->ucx, old);
    assert_ptr_equal(before->ucx, old);

    assert_int_equal(umi_context_renew(context, old), UMX_OK); /* it has been */
    assert_int_equal(umx_memh_register(context, &buf, NULL, &after), UMX_OK);
    assert_true(umi_context_is_newest(context, after->ucx));
    assert_int_equal(umx_context_info(context, &text), UMX_OK);
    free(text);
    umx_memh_release(before);
    umx_worker_destroy(worker);
    umx_memh_release(after);
    umx_context_release(context);
}

static bool is_thread_refused;

#pragma GCC visibility push(default)

/* Start a thread, or fail as where the system's limit is reached. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attr,
               void *(*fn)(void *), void               *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (is_thread_refused) {
        return EAGAIN;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attr, fn, arg);
}

#pragma GCC visibility pop

/* UCX would abort the process. */
static void
test_a_process_that_may_start_no_thread_is_told_so(void **state)
{
    umx_context *context = NULL;
    int          bad     = 7;

    (void)state;
    is_thread_refused = true;
    assert_int_equal(umx_context_create(NULL, &context, &bad),
                     UMX_ERR_THREAD_LIMIT);
    assert_null(context);
    assert_int_equal(bad, -1);
    is_thread_refused = false;
    assert_int_equal(umx_context_create(NULL, &context, NULL), UMX_OK);
    umx_context_release(context);
}

static void
test_a_process_without_descriptors_is_told_so(void **state)
{
    struct rlimit limit, none;
    umx_context  *context = NULL;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(umx_context_create(NULL, &context, NULL),
                     UMX_ERR_DESCRIPTOR_LIMIT);
    assert_null(context);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void
test_an_unknown_option_is_named(void **state)
{
    umx_option   options[] = {{"TLS", "tcp"}, {"NO_SUCH_OPTION", "1"}};
    umx_context *context   = NULL;
    int          bad       = 7;

    (void)state;
    if (is_old_ucx()) {
        skip();
    }
    assert_int_equal(create(options, 2, 0, &context, &bad),
                     UMX_ERR_UNKNOWN_OPTION);
    assert_int_equal(bad, 1);
    assert_null(context);
    assert_int_equal(create(options, 2, 0, &context, NULL),
                     UMX_ERR_UNKNOWN_OPTION);
}

static void
test_a_bad_value_is_named(void **state)
{
    umx_option   options[] = {{"RNDV_THRESH", "a lot"}};
    umx_context *context   = NULL;
    int          bad       = 7;

    (void)state;
    assert_int_equal(create(options, 1, 0, &context, &bad),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(bad, 0);
    assert_null(context);
}

static void
test_ucx_refuses_what_it_cannot_do(void **state)
{
    umx_option   options[] = {{"TLS", "no_such_transport"}};
    umx_context *context   = NULL;
    int          bad       = 7;

    (void)state;
    assert_true(create(options, 1, 0, &context, &bad) < 0);
    assert_int_equal(bad, -1);
    assert_null(context);
}

/* Weakest first: libumx, the environment, the options; or, asked for, libumx,
 * the options, the environment. */
static void
test_precedence(void **state)
{
    umx_option   option = {"NUM_EPS", "1234"};
    const lookup plain  = value_of("NUM_EPS", NULL, 0, 0);

    (void)state;
    assert_string_equal(value_of("NUM_EPS", &option, 1, 0).value, "1234");
    assert_string_not_equal(plain.value, "1234");
    setenv("UCX_NUM_EPS", "5678", 1);
    assert_string_equal(value_of("NUM_EPS", NULL, 0, 0).value, "5678");
    assert_string_equal(value_of("NUM_EPS", &option, 1, 0).value, "1234");
    assert_string_equal(
        value_of("NUM_EPS", &option, 1, UMX_CONTEXT_FLAG_ENV_FIRST).value,
        "5678");
    assert_string_equal(getenv("UCX_NUM_EPS"), "5678");
    unsetenv("UCX_NUM_EPS");
}

/* With it two threads that register memory hang. */
static void
test_the_context_has_no_mutex_whoever_wants_it(void **state)
{
    umx_option on = {"USE_MT_MUTEX", "y"};

    (void)state;
    assert_string_equal(value_of("USE_MT_MUTEX", &on, 1, 0).value, "n");
    setenv("UCX_USE_MT_MUTEX", "y", 1);
    assert_string_equal(value_of("USE_MT_MUTEX", NULL, 0, 0).value, "n");
    unsetenv("UCX_USE_MT_MUTEX");
}

extern char **environ;

static void
test_the_environment_is_not_written(void **state)
{
    umx_option   option = {"TLS", "tcp"};
    umx_context *context;
    int          before = 0, after = 0;

    (void)state;
    while (environ[before] != NULL) {
        before++;
    }
    assert_int_equal(create(&option, 1, 0, &context, NULL), UMX_OK);
    umx_context_release(context);
    while (environ[after] != NULL) {
        after++;
    }
    assert_int_equal(before, after);
    assert_null(getenv("UCX_TLS"));
}

static void
test_options_cannot_be_listed_with_a_bad_one(void **state)
{
    umx_option         option = {"NO_SUCH_OPTION", "1"};
    umx_context_params params = {.field_mask  = UMX_CONTEXT_FIELD_OPTIONS,
                                 .options     = &option,
                                 .num_options = 1};
    lookup             l      = {.key = "TLS"};
    int                bad;

    (void)state;
    if (is_old_ucx()) {
        skip();
    }
    assert_int_equal(umx_context_options(&params, look, &l, &bad),
                     UMX_ERR_UNKNOWN_OPTION);
    assert_int_equal(bad, 0);
    assert_int_equal(l.found, 0);
    assert_int_equal(umx_context_options(NULL, look, &l, NULL), UMX_OK);
    assert_int_equal(l.found, 1);
}

/* ---- config --------------------------------------------------------------
 */

static umx_status
create_with(const umx_config *config)
{
    umx_context_params params  = {.field_mask = UMX_CONTEXT_FIELD_CONFIG,
                                  .config     = config};
    umx_context       *context = NULL;
    umx_status         status  = umx_context_create(&params, &context, NULL);

    if (status == UMX_OK) {
        umx_context_release(context);
    } else {
        assert_null(context);
    }
    return status;
}

static void
test_limits_that_make_no_sense(void **state)
{
    static const uint8_t token[300];

    umx_config good, bad;

    (void)state;
    umx_config_default(&good);
    assert_int_equal(create_with(&good), UMX_OK);
    assert_null(umx_config_check(&good));
    assert_int_equal(create_with(NULL), UMX_ERR_INVALID_PARAM);
#define CHECK_BAD(name, change)                                     \
    do {                                                            \
        bad = good;                                                 \
        change;                                                     \
        assert_int_equal(create_with(&bad), UMX_ERR_INVALID_PARAM); \
        assert_non_null(strstr(umx_config_check(&bad), #name));     \
    } while (0)
    CHECK_BAD(credit_bytes, bad.credit_bytes = 0);
    CHECK_BAD(credit_messages, bad.credit_messages = 1);
    CHECK_BAD(credit_rndv, bad.credit_rndv = 1);
    CHECK_BAD(channels_max, bad.channels_max = 0);
    CHECK_BAD(channels_max, bad.channels_max = UMX_CHANNELS_MAX + 1);
    CHECK_BAD(rndv_thresh_shm, bad.rndv_thresh_shm = 0);
    CHECK_BAD(rndv_thresh_net, bad.rndv_thresh_net = 0);
    CHECK_BAD(connect_timeout_ns, bad.connect_timeout_ns = 0);
    CHECK_BAD(heartbeat_ns, bad.heartbeat_ns = 999999);
    CHECK_BAD(rma_ucx, bad.rma_ucx = 3);
    CHECK_BAD(frames_max, bad.frames_max = 0);
    CHECK_BAD(frames_bytes_max, bad.frames_bytes_max = 0);
    CHECK_BAD(token, (bad.token = token, bad.token_len = 0));
    CHECK_BAD(token, (bad.token = token, bad.token_len = 257));
#undef CHECK_BAD
}

static void
test_the_token_is_copied(void **state)
{
    uint8_t            token[] = "secret";
    umx_config         config;
    umx_context_params params = {.field_mask = UMX_CONTEXT_FIELD_CONFIG,
                                 .config     = &config};
    umx_context       *context;

    (void)state;
    umx_config_default(&config);
    config.token     = token;
    config.token_len = 6;
    assert_int_equal(umx_context_create(&params, &context, NULL), UMX_OK);
    memset(token, 0, sizeof(token));
    assert_memory_equal(umx_context_config(context)->token, "secret", 6);
    umx_context_release(context);
}

static void
test_versions(void **state)
{
    unsigned major, minor, release;

    (void)state;
    umx_ucx_version(&major, &minor, &release);
    assert_int_equal(major, 1);
    assert_true(minor >= 13);
}

static void
keep_line(int level, const char *text, void *arg)
{
    int *count = arg;

    (void)level;
    assert_true(strlen(text) > 0);
    ++*count;
}

/* UCX's lines come to our sink, not to standard output. */
static void
test_the_log_can_be_taken(void **state)
{
    umx_option   options[] = {{"TLS", "no_such_transport"}};
    umx_context *context;
    int          lines = 0;

    (void)state;
    umx_log_set(keep_line, &lines);
    assert_true(create(options, 1, 0, &context, NULL) < 0);
    umx_log_set(NULL, NULL);
    assert_true(lines > 0);
}

static void
test_a_line_about_settings_of_libumx_is_known(void **state)
{
    (void)state;
    assert_true(umi_config_is_about_settings(
        "invalid configurations: TCP_CONN_NB=y,TCP_KEEPINTVL=75s"));
    assert_true(
        umi_config_is_about_settings("invalid configuration: TCP_CONN_NB=y"));
    assert_false(umi_config_is_about_settings(
        "invalid configurations: TCP_CONN_NB=y,TCP_CONNECT=y"));
    assert_false(umi_config_is_about_settings(
        "invalid configurations: TCP_CONN_NB=y,TCP_KEEPINTVL=7s"));
    assert_false(umi_config_is_about_settings("invalid value: TCP_CONN_NB=y"));
    assert_false(umi_config_is_about_settings("invalid configurations"));
}

/* UCX takes such sizes, and damages messages. */
static void
test_segments_whose_size_has_more_than_16_bits_are_refused(void **state)
{
    static const char *const keys[] = {"MM_SEG_SIZE", "POSIX_SEG_SIZE",
                                       "SYSV_SEG_SIZE", "XPMEM_SEG_SIZE"};
    static const char *const bad[]  = {"64k", "64KB", "65536", "65536b",
                                       "1m",  "1g",   "inf"};
    static const char *const good[] = {"8256", "65535", "63k", "32KB"};

    umx_context *context;
    int          index;

    (void)state;
    for (size_t k = 0; k < 4; k++) {
        umx_option options[] = {{"TLS", "tcp"}, {keys[k], NULL}};
        char       name[32];

        snprintf(name, sizeof(name), "UCX_%s", keys[k]);
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
            options[1].value = bad[i];
            assert_int_equal(create(options, 2, 0, &context, &index),
                             UMX_ERR_SEG_SIZE);
            assert_int_equal(index, 1);
            setenv(name, bad[i], 1);
            assert_int_equal(create(options, 1, 0, &context, &index),
                             UMX_ERR_SEG_SIZE);
            assert_int_equal(index, -1);
            unsetenv(name);
        }
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        umx_option options[] = {{"TLS", "posix,self"},
                                {"POSIX_SEG_SIZE", good[i]}};

        setenv("UCX_POSIX_SEG_SIZE", "64k", 1); /* the option goes first */
        assert_int_equal(create(options, 2, 0, &context, &index), UMX_OK);
        umx_context_release(context);
        assert_int_equal(
            create(options, 2, UMX_CONTEXT_FLAG_ENV_FIRST, &context, &index),
            UMX_ERR_SEG_SIZE);
        assert_int_equal(index, -1);
        unsetenv("UCX_POSIX_SEG_SIZE");
    }
}

/* UCX takes a pattern for the name of an option. */
static void
test_a_pattern_chooses_the_size_of_segments(void **state)
{
    umx_option   options[] = {{"TLS", "tcp"}, {"*_SEG_SIZE", "64k"}};
    umx_context *context;
    int          index;

    (void)state;
    assert_int_equal(create(options, 2, 0, &context, &index), UMX_ERR_SEG_SIZE);
    assert_int_equal(index, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_ucx_is_begun_anew),
        cmocka_unit_test(test_a_process_that_may_start_no_thread_is_told_so),
        cmocka_unit_test(test_a_process_without_descriptors_is_told_so),
        cmocka_unit_test(test_an_unknown_option_is_named),
        cmocka_unit_test(test_a_bad_value_is_named),
        cmocka_unit_test(test_ucx_refuses_what_it_cannot_do),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_the_context_has_no_mutex_whoever_wants_it),
        cmocka_unit_test(test_the_environment_is_not_written),
        cmocka_unit_test(test_options_cannot_be_listed_with_a_bad_one),
        cmocka_unit_test(test_limits_that_make_no_sense),
        cmocka_unit_test(
            test_segments_whose_size_has_more_than_16_bits_are_refused),
        cmocka_unit_test(test_a_pattern_chooses_the_size_of_segments),
        cmocka_unit_test(test_the_token_is_copied),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_the_log_can_be_taken),
        cmocka_unit_test(test_a_line_about_settings_of_libumx_is_known),
    };

    return UNIT_RUN(tests);
}
