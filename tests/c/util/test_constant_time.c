/* SPDX-License-Identifier: BSD-3-Clause */
/* link: optimised */
/* tests: util/hash util/x25519 */
/* No branch and no address depends on a secret. memcheck reports those that
 * depend on bytes which nobody has initialised, so each test runs this program
 * again, under valgrind, and tells it that the secrets are such bytes. */
#include "unit.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "util/hash.h"
#include "util/x25519.h"

#if defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif
#endif
#ifndef VALGRIND_MAKE_MEM_UNDEFINED
#define VALGRIND_MAKE_MEM_UNDEFINED(p, len) ((void)(p), (void)(len))
#define VALGRIND_MAKE_MEM_DEFINED(p, len) ((void)(p), (void)(len))
#define NO_MEMCHECK 1
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NO_MEMCHECK 1 /* valgrind does not run such a program */
#else
#define NO_MEMCHECK 0
#endif

enum {
    FOUND = 9 /* the exit status when memcheck has reported something */
};

static void
hide(void *p, size_t len)
{
    VALGRIND_MAKE_MEM_UNDEFINED(p, len);
}

/* What is made of secrets may be told. */
static void
reveal(void *p, size_t len)
{
    VALGRIND_MAKE_MEM_DEFINED(p, len);
}

static int
run_x25519(void)
{
    uint8_t secret[UMI_X25519_SIZE] = {1, 2, 3}, key[UMI_X25519_SIZE];
    uint8_t shared[UMI_X25519_SIZE];
    bool    is_good;

    hide(secret, sizeof(secret));
    umi_x25519_public(secret, key);
    reveal(key, sizeof(key));
    is_good = umi_x25519_shared(secret, key, shared);
    reveal(&is_good, sizeof(is_good));
    return is_good ? 0 : 1;
}

static int
run_hmac(void)
{
    uint8_t key[100] = {1}, data[200] = {2}, mac[UMI_SHA256_SIZE];

    hide(key, sizeof(key));
    hide(data, sizeof(data));
    umi_hmac_sha256(key, 32, data, sizeof(data), mac);
    umi_hmac_sha256(key, sizeof(key), data, sizeof(data), mac);
    return 0;
}

static int
run_equal(void)
{
    uint8_t a[UMI_SHA256_SIZE] = {1}, b[UMI_SHA256_SIZE] = {1};
    bool    is_equal;

    hide(a, sizeof(a));
    hide(b, sizeof(b));
    is_equal = umi_equal_constant_time(a, b, sizeof(a));
    reveal(&is_equal, sizeof(is_equal));
    return is_equal ? 0 : 1;
}

/* What must be found, or the others say nothing. */
static int
run_branch(void)
{
    volatile uint8_t secret = 1;

    hide((void *)&secret, sizeof(secret));
    return (secret == 1) ? 0 : 1;
}

static const struct {
    const char *name;
    int (*run)(void);
} parts[] = {
    {"x25519", run_x25519},
    {"hmac", run_hmac},
    {"equal", run_equal},
    {"branch", run_branch},
};

/* The exit status of a part under memcheck; skips the test without valgrind. */
static int
checked(const char *part)
{
    char  path[PATH_MAX + 1] = {0};
    pid_t pid;
    int   status;

    if (NO_MEMCHECK) {
        skip();
    }
    assert_true(readlink("/proc/self/exe", path, PATH_MAX) > 0);
    pid = fork();
    assert_int_not_equal(pid, -1);
    if (pid == 0) {
        execlp("valgrind", "valgrind", "--quiet", "--error-exitcode=9", "--",
               path, part, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 127) {
        print_message("no valgrind\n");
        skip();
    }
    return WEXITSTATUS(status);
}

static void
test_x25519_does_not_depend_on_the_secret(void **state)
{
    (void)state;
    assert_int_equal(checked("x25519"), 0);
}

static void
test_hmac_does_not_depend_on_key_and_data(void **state)
{
    (void)state;
    assert_int_equal(checked("hmac"), 0);
}

static void
test_comparing_does_not_depend_on_what_is_compared(void **state)
{
    (void)state;
    assert_int_equal(checked("equal"), 0);
}

static void
test_a_branch_on_a_secret_is_found(void **state)
{
    (void)state;
    assert_int_equal(checked("branch"), FOUND);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_x25519_does_not_depend_on_the_secret),
        cmocka_unit_test(test_hmac_does_not_depend_on_key_and_data),
        cmocka_unit_test(test_comparing_does_not_depend_on_what_is_compared),
        cmocka_unit_test(test_a_branch_on_a_secret_is_found),
    };

    for (size_t i = 0; argc > 1 && i < sizeof(parts) / sizeof(*parts); i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            return parts[i].run();
        }
    }
    return UNIT_RUN(tests);
}
