/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.c: a fuzz target without libFuzzer, for compilers that have none.
 *
 *   replay_control CORPUS RUNS
 *
 * Feeds it every file of the directory CORPUS, then RUNS mutations of them,
 * the same ones each time. What it dies of is written beside the program, as
 * replay_control.crash. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Of ASan, if the program is built with it. */
void __asan_set_death_callback(void (*callback)(void)) __attribute__((weak));

enum {
    MAX_INPUTS = 256,
    MAX_LEN    = 16384,
    /* Seconds: of a core, which an input that never ends takes, and in all. */
    CPU_SECONDS  = 240,
    WALL_SECONDS = 1200
};

typedef struct input {
    uint8_t data[MAX_LEN];
    size_t  len;
} input;

static input       inputs[MAX_INPUTS];
static unsigned    num_inputs;
static input       current;
static const char *name;
static uint64_t    state = 0x9e3779b97f4a7c15u;

static void
write_crash(void)
{
    char  path[1024];
    FILE *file;

    snprintf(path, sizeof(path), "%s.crash", name);
    file = fopen(path, "wb");
    if (file != NULL) {
        (void)!fwrite(current.data, 1, current.len, file);
        fclose(file);
        fprintf(stderr, "%s: input written to %s\n", name, path);
    }
}

static void
on_abort(int signum)
{
    write_crash();
    signal(signum, SIG_DFL);
    raise(signum);
}

/* In memory of just its size, so that ASan sees every byte read beyond it. */
static void
run(const input *in)
{
    uint8_t *copy = malloc(in->len);

    if (copy == NULL && in->len != 0) {
        perror(name);
        exit(1);
    }
    current = *in;
    if (in->len != 0) {
        memcpy(copy, in->data, in->len);
    }
    LLVMFuzzerTestOneInput(copy, in->len);
    free(copy);
}

/* ---- mutations -----------------------------------------------------------
 */

/* xorshift64*: below `limit`, which is not 0. */
static uint64_t
pick(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1du >> 11) % limit;
}

static void
put_number(input *in)
{
    static const uint64_t numbers[] = {
        0,      1,      0x7f,   0x80,       0xff,       0x100,
        0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, UINT64_MAX};

    uint64_t number = numbers[pick(sizeof(numbers) / sizeof(*numbers))];
    size_t   width  = (size_t)1 << pick(4);

    if (in->len >= width) {
        memcpy(in->data + pick(in->len - width + 1), &number, width);
    }
}

static void
resize(input *in)
{
    size_t len = pick(2) == 0 ? pick(in->len + 1) : in->len + pick(64);

    if (len > MAX_LEN) {
        len = MAX_LEN;
    }
    for (size_t i = in->len; i < len; i++) {
        in->data[i] = (uint8_t)pick(256);
    }
    in->len = len;
}

/* Splice in the rest of another input. */
static void
splice(input *in)
{
    const input *other = &inputs[pick(num_inputs)];
    size_t       at    = pick(in->len + 1);

    if (at < other->len) {
        memcpy(in->data + at, other->data + at, other->len - at);
        in->len = other->len;
    }
}

static void
mutate(input *in)
{
    switch (pick(5)) {
    case 0:
        if (in->len != 0) {
            in->data[pick(in->len)] ^= (uint8_t)(1u << pick(8));
        }
        break;
    case 1:
        if (in->len != 0) {
            in->data[pick(in->len)] = (uint8_t)pick(256);
        }
        break;
    case 2:
        put_number(in);
        break;
    case 3:
        resize(in);
        break;
    case 4:
        splice(in);
        break;
    }
}

/* ---- the corpus ----------------------------------------------------------
 */

static int
is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void
read_input(const char *directory, const char *file_name)
{
    input *in = &inputs[num_inputs++];
    char   path[1024];
    FILE  *file;

    snprintf(path, sizeof(path), "%s/%s", directory, file_name);
    file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    in->len = fread(in->data, 1, MAX_LEN, file);
    fclose(file);
}

static void
read_corpus(const char *directory)
{
    struct dirent **entries;
    int             count = scandir(directory, &entries, is_input, alphasort);

    if (count <= 0 || count > MAX_INPUTS) {
        fprintf(stderr, "%s: no corpus of 1 to %d files\n", directory,
                MAX_INPUTS);
        exit(1);
    }
    for (int i = 0; i < count; i++) {
        read_input(directory, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* How much of a core there is depends on what else the machine does. */
static void
limit_time(void)
{
    struct rlimit limit = {.rlim_cur = CPU_SECONDS, .rlim_max = CPU_SECONDS};

    setrlimit(RLIMIT_CPU, &limit);
    alarm(WALL_SECONDS);
}

int
main(int argc, char **argv)
{
    unsigned long runs;

    name = argv[0];
    if (argc != 3) {
        fprintf(stderr, "usage: %s CORPUS RUNS\n", name);
        return 2;
    }
    if (__asan_set_death_callback != NULL) {
        __asan_set_death_callback(write_crash);
    }
    signal(SIGABRT, on_abort);
    limit_time();
    read_corpus(argv[1]);
    runs = strtoul(argv[2], NULL, 10);
    for (unsigned i = 0; i < num_inputs; i++) {
        run(&inputs[i]);
    }
    for (unsigned long i = 0; i < runs; i++) {
        static input mutated;

        mutated = inputs[pick(num_inputs)];
        for (uint64_t left = 1 + pick(4); left > 0; left--) {
            mutate(&mutated);
        }
        run(&mutated);
    }
    printf("%s: %u inputs, %lu mutations\n", name, num_inputs, runs);
    return 0;
}
