/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: host/ucx_segment endpoint/apart endpoint/peer_address */
#include "codec/ucx_address.h"

#include "pair.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/ucx_segment.h"
#include "util/host.h"

/* Recorded: UCX 1.22, one worker with self, tcp, posix, sysv and cma. */
static const char v1[] =
    "20e4880c26bd2750250000637577cc2b320040975000000000004f030088fcad9cd7443b30"
    "c601060002c0000202cf1917b751389763344bd7e03737001323008285e9010e010245ea47"
    "5b214283f2f9ffffefcf1917b75138539e3e4bd7e037370113230082e4ad020845ea475b21"
    "4283728d5377cc2b320000705077ccab33004f23008827808b0000000000030845ea475b21"
    "428372a7d377cc2b320000705077ccab33004f230088ec3a0000040000c0040845ea475b21"
    "428372478bbd37063600242e5077ccab330092210084ec3a00008680";
static const char v1_net[] =
    "20e4880c26bd27502501060002c0000202cf1917b751389763344bd7e03737001323008285"
    "e9010e010245ea475b214283f2f9ffffefcf1917b75138539e3e4bd7e037370113230082e4"
    "ad8680";
static const char v1_named[] =
    "30ef968cbb899d0fb108766d3a313531323201060002c0000202cf1917b751389763344bd7"
    "e037370013230082bde3010e010245ea475b214283f2f9ffffefcf1917b75138539e3e4bd7"
    "e037370113230082b8fd8680";
static const char v2[] =
    "6102200798193cf46635000063754426000080001b00887f9fdafadb17ce0701060002c000"
    "0202cf190c015a0080008b0082b973010e010245ea475b214283f2f9ffffefcf190c015a01"
    "80008b0082d2bd020845ea475b214283728d5344e5430081009b00882c808b000000000003"
    "0845ea475b21428372a7d344e5430081009b0088053b0000040000c0048845ea475b214283"
    "72478bfb5543000000990084053b0000";

static size_t
from_hex(const char *hex, uint8_t *bytes)
{
    size_t len = strlen(hex) / 2;

    for (size_t i = 0; i < len; i++) {
        unsigned byte;

        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
    return len;
}

/* From memory of just its size, so that ASan sees a read past it. */
static bool
decode(umi_ucx_address *address, const uint8_t *data, size_t len,
       const char **why_p)
{
    uint8_t *copy = malloc(len != 0 ? len : 1);
    bool     is_good;

    assert_non_null(copy);
    memcpy(copy, data, len);
    *why_p  = NULL;
    is_good = umi_ucx_address_decode(address, copy, len, why_p);
    assert_int_equal(is_good, *why_p == NULL);
    free(copy);
    return is_good;
}

static void
check_good(const char *hex, unsigned version, uint64_t uuid, bool has_local,
           unsigned num_transports)
{
    uint8_t         bytes[512];
    size_t          len = from_hex(hex, bytes);
    umi_ucx_address address;
    const char     *why;

    assert_true(decode(&address, bytes, len, &why));
    assert_int_equal(address.version, version);
    assert_int_equal(address.uuid, uuid);
    assert_int_equal(address.has_local, has_local);
    assert_int_equal(address.num_transports, num_transports);
}

static void
check_refused(const uint8_t *bytes, size_t len, const char *expected)
{
    umi_ucx_address address;
    const char     *why;

    assert_false(decode(&address, bytes, len, &why));
    assert_string_equal(why, expected);
}

static void
test_what_ucx_writes_is_good(void **state)
{
    (void)state;
    check_good(v1, 1, 0x255027bd260c88e4, true, 6);
    check_good(v1_net, 1, 0x255027bd260c88e4, false, 2);
    check_good(v1_named, 1, 0xb10f9d89bb8c96ef, false, 2);
    check_good(v2, 2, 0x3566f43c19980720, true, 6);
}

static umx_worker *
make_worker(const char *tls)
{
    umx_context *context = pair_context(tls, NULL);
    umx_worker  *worker;

    assert_int_equal(umx_worker_create(context, &worker), UMX_OK);
    umx_context_release(context);
    return worker;
}

static void
test_segments_that_are_none_of_ucxs_are_told(void **state)
{
    umx_worker     *worker = make_worker(NULL);
    int             shmid  = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    int             fd     = open("/dev/null", O_RDWR);
    umi_ucx_address address;
    const void     *data;
    const char     *why;
    size_t          len, size;

    (void)state;
    assert_int_equal(umi_engine_address(worker->engine, true, &data, &len),
                     UMX_OK);
    assert_true(decode(&address, data, len, &why));
    assert_true(address.num_segments > 0);
    for (unsigned i = 0; i < address.num_segments; i++) {
        uint64_t own    = address.segments[i].id;
        uint64_t id     = own;
        uint32_t pid_ns = address.segments[i].pid_ns;

        if (address.segments[i].is_posix) {
            assert_int_equal(umi_segments_look_posix(id, own, pid_ns, &size),
                             UMI_UCX_SEGMENT_OPEN);
            assert_in_range(size, 4096, SIZE_MAX);
            /* A process of another namespace: UCX does not map it. */
            assert_int_equal(umi_segments_look_posix(id, own, 1, &size),
                             UMI_UCX_SEGMENT_CLOSED);
            /* Another descriptor of this process; one that is not there. */
            id = (id & ~(((UINT64_C(1) << 30) - 1) << 30)) | (uint64_t)fd << 30;
            assert_int_equal(umi_segments_look_posix(id, own, pid_ns, &size),
                             UMI_UCX_SEGMENT_NONE);
            /* UCX opens that one without the flag of shm_open() as well. */
            assert_int_equal(umi_segments_look_posix(id & ~(UINT64_C(1) << 62),
                                                     own, pid_ns, &size),
                             UMI_UCX_SEGMENT_NONE);
            /* In a directory that the address names. */
            assert_int_equal(umi_segments_look_posix(5, own, pid_ns, &size),
                             UMI_UCX_SEGMENT_NONE);
            id |= ((UINT64_C(1) << 30) - 1) << 30;
            assert_int_equal(umi_segments_look_posix(id, own, pid_ns, &size),
                             UMI_UCX_SEGMENT_CLOSED);
        } else {
            assert_int_equal(umi_segments_look_sysv(id, &size),
                             UMI_UCX_SEGMENT_OPEN);
            assert_in_range(size, 4096, SIZE_MAX);
            assert_int_equal(umi_segments_look_sysv(UINT64_MAX, &size),
                             UMI_UCX_SEGMENT_NONE);
        }
    }
    assert_int_equal(umi_segments_look_sysv((uint64_t)shmid, &size),
                     UMI_UCX_SEGMENT_OPEN);
    assert_int_equal(size, 4096);
    shmctl(shmid, IPC_RMID, NULL);
    assert_int_equal(umi_segments_look_sysv((uint64_t)shmid, &size),
                     UMI_UCX_SEGMENT_GONE);
    close(fd);
    umx_worker_destroy(worker);
}

#define POSIX_SHM_OPEN (UINT64_C(1) << 62)

enum {
    NOBODY = 65534
};

/* What a process of another user, `uid`, calls a segment. */
static umi_ucx_segment_state
state_for(uid_t uid, int shmid)
{
    int   status;
    pid_t pid = fork();

    if (pid == 0) {
        size_t size;

        _exit(setuid(uid) == 0 ?
                  (int)umi_segments_look_sysv((uint64_t)shmid, &size) :
                  99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (umi_ucx_segment_state)WEXITSTATUS(status);
}

/* The superuser could map one of another user, who could not map its own. */
static void
test_segments_of_other_users_are_told(void **state)
{
    int             shmid  = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    uint32_t        pid_ns = umi_host_process_namespace();
    struct shmid_ds what;
    size_t          size;
    int             file;

    (void)state;
    if (geteuid() != 0) {
        shmctl(shmid, IPC_RMID, NULL);
        skip();
    }
    assert_int_equal(state_for(0, shmid), UMI_UCX_SEGMENT_OPEN);
    assert_int_equal(state_for(NOBODY, shmid), UMI_UCX_SEGMENT_FOREIGN);
    assert_int_equal(shmctl(shmid, IPC_STAT, &what), 0);
    what.shm_perm.mode = 0666; /* whoever may read it */
    assert_int_equal(shmctl(shmid, IPC_SET, &what), 0);
    assert_int_equal(state_for(NOBODY, shmid), UMI_UCX_SEGMENT_FOREIGN);
    shmctl(shmid, IPC_RMID, NULL);

    file = open("/dev/shm/ucx_shm_posix_7e57", O_CREAT | O_EXCL | O_RDWR, 0666);
    assert_true(file >= 0);
    assert_int_equal(
        umi_segments_look_posix(POSIX_SHM_OPEN | 0x7e57, 0, pid_ns, &size),
        UMI_UCX_SEGMENT_OPEN);
    assert_int_equal(fchown(file, NOBODY, NOBODY), 0);
    assert_int_equal(
        umi_segments_look_posix(POSIX_SHM_OPEN | 0x7e57, 0, pid_ns, &size),
        UMI_UCX_SEGMENT_FOREIGN);
    close(file);
    unlink("/dev/shm/ucx_shm_posix_7e57");
}

/* Addresses that the installed UCX writes are good, whatever its version. */
static void
test_what_this_ucx_writes_is_good(void **state)
{
    static const char *const tls[] = {NULL, "tcp", "tcp,self", "sm,self"};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(tls) / sizeof(*tls); i++) {
        umx_worker     *worker = make_worker(tls[i / 2]);
        const void     *data;
        size_t          len;
        umi_ucx_address address;
        const char     *why;

        assert_int_equal(umi_engine_address(worker->engine, i % 2, &data, &len),
                         UMX_OK);
        if (len > 16) { /* the address has transports */
            assert_true(decode(&address, data, len, &why));
            assert_in_range(address.version, 1, 2);
            assert_true(address.uuid != 0);
            assert_true(i % 2 == 1 || !address.has_local);
        }
        umx_worker_destroy(worker);
    }
}

static void
test_every_cut_is_refused(void **state)
{
    static const char *const all[] = {v1, v1_net, v1_named, v2};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        uint8_t         bytes[512];
        size_t          len = from_hex(all[i], bytes);
        umi_ucx_address address;
        const char     *why;

        for (size_t cut = 0; cut < len; cut++) {
            assert_false(decode(&address, bytes, cut, &why));
        }
        bytes[len] = 0;
        check_refused(bytes, len + 1, "UCX's address has bytes left over");
    }
}

/* Refuses the devices of a bit field, in their order. */
static bool
keeps(const umi_ucx_piece *piece, void *arg)
{
    unsigned *refused = arg;
    bool      is_kept = (*refused & 1) == 0;

    assert_non_null(piece->transport);
    *refused >>= 1;
    return is_kept;
}

static void
test_an_address_without_some_devices_is_one(void **state)
{
    static const char *const all[] = {v1, v1_net, v1_named, v2};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        uint8_t         bytes[512], in_place[512], *out;
        size_t          len = from_hex(all[i], bytes), filtered;
        umi_ucx_address whole, address;
        const char     *why;
        unsigned        last = 1;

        assert_true(decode(&whole, bytes, len, &why));
        for (unsigned refused = 0; refused < 64; refused++) {
            unsigned left = refused;

            out = malloc(len); /* of just its size */
            assert_non_null(out);
            filtered = umi_ucx_address_filter(bytes, len, keeps, &left, out);
            memcpy(in_place, bytes, len);
            left = refused;
            assert_int_equal(
                umi_ucx_address_filter(in_place, len, keeps, &left, in_place),
                filtered);
            assert_memory_equal(in_place, out, filtered);
            if (refused == 0) {
                assert_int_equal(filtered, len);
                assert_memory_equal(out, bytes, len);
                last = whole.num_transports;
            }
            if (filtered != 0) {
                assert_true(decode(&address, out, filtered, &why));
                assert_int_equal(address.uuid, whole.uuid);
                assert_in_range(address.num_transports, 0, last);
                assert_true(filtered < len || (refused & 3) == 0);
            }
            free(out);
        }
        /* Each cut is refused, and nothing is read behind it. */
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *copy = malloc(cut + 1);
            unsigned none = 0;

            out = malloc(cut + 1);
            assert_non_null(copy);
            assert_non_null(out);
            memcpy(copy, bytes, cut);
            assert_int_equal(
                umi_ucx_address_filter(copy, cut, keeps, &none, out), 0);
            free(copy);
            free(out);
        }
    }
}

static void
test_versions_to_come_are_told_apart(void **state)
{
    uint8_t         bytes[512];
    size_t          len = from_hex(v1, bytes);
    umi_ucx_address address;
    const char     *why;

    (void)state;
    bytes[0] = 0x25;
    assert_true(decode(&address, bytes, len, &why));
    assert_int_equal(address.version, 6);
    bytes[0] = 0x00;
    check_refused(bytes, len, "UCX's address has other flags than a worker's");
}

static void
test_contents_that_ucx_must_not_see_are_refused(void **state)
{
    enum {
        SELF      = 9,
        BANDWIDTH = SELF + 8,
        TCP       = SELF + 2 + 2 + 16 + 1 + 8,
        POSIX     = 105
    };
    static const struct {
        size_t      at;
        uint8_t     byte;
        const char *why;
    } changes[] = {
        {BANDWIDTH + 3, 0xd0, "UCX's address has a number that is none"},
        {BANDWIDTH + 3, 0x7f, "UCX's address has a number that is none"},
        {SELF + 2 + 2 + 16, 0xc8, "UCX's address has an endpoint in it"},
        {TCP + 2, 0x02, "UCX's address has no tcp device of its form"},
        {TCP + 3, 0x03, "UCX's address has no tcp device of its form"},
        {TCP + 3, 0x0a, "UCX's address has no tcp device of its form"},
        {TCP + 2, 0x01, "UCX's address has no tcp device of its form"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        uint8_t bytes[512];
        size_t  len = from_hex(v1, bytes);

        bytes[changes[i].at] = changes[i].byte;
        check_refused(bytes, len, changes[i].why);
    }
}

/* An address repeats one device and one unknown transport any number of
 * times. */
static void
test_no_more_entries_than_ucx_has_room_for(void **state)
{
    static uint8_t bytes[9 + 2 + 129 * 19];

    umi_ucx_address address;
    const char     *why;

    (void)state;
    for (size_t count = 127; count <= 129; count++) {
        size_t len = 9 + 2;

        memset(bytes, 0, sizeof(bytes));
        bytes[0]  = 0x20;
        bytes[10] = 0x80; /* the last device */
        for (size_t i = 0; i < count; i++) {
            bytes[len + 9]  = 0x3f; /* bandwidth: 1.0 */
            bytes[len + 8]  = 0x80;
            bytes[len + 18] = (i + 1 == count) ? 0x80 : 0;
            len += 19;
        }
        assert_int_equal(decode(&address, bytes, len, &why), count <= 128);
    }
    assert_string_equal(why, "UCX's address has too many transports");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_ucx_writes_is_good),
        cmocka_unit_test(test_what_this_ucx_writes_is_good),
        cmocka_unit_test(test_segments_that_are_none_of_ucxs_are_told),
        cmocka_unit_test(test_segments_of_other_users_are_told),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_an_address_without_some_devices_is_one),
        cmocka_unit_test(test_versions_to_come_are_told_apart),
        cmocka_unit_test(test_contents_that_ucx_must_not_see_are_refused),
        cmocka_unit_test(test_no_more_entries_than_ucx_has_room_for),
    };

    return UNIT_RUN(tests);
}
