/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_agree.c: do the ranks call the same operations in the same order?
 *
 * Each message of an operation, each goodbye, and what a rank says while it
 * waits, tell what the rank has called, and a hash of all that it has called
 * before. So ranks that differ find out even if none waits for the other, as
 * where two only send: at the latest when they exchange the next message. */
#include <stdio.h>

#include "comm/collective.h"

enum {
    LISTED = 4 /* calls, in the text that cannot name the one that differs */
};

/* ---- the calls of this rank ----------------------------------------------
 */

/* Mix a word into a hash: two steps of a multiplication whose upper bits, which
 * depend on all, are folded down. */
static uint64_t
mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static umi_comm_call
call_of(const umi_comm_coll *coll)
{
    return (umi_comm_call){.number  = coll->number,
                           .op      = coll->type->kind,
                           .what    = coll->what,
                           .bytes   = coll->bytes,
                           .history = coll->history};
}

void
umi_comm_coll_note(umi_comm_coll *coll)
{
    umx_comm     *comm = coll->comm;
    umi_comm_call call;

    coll->number  = comm->next_number++;
    coll->history = comm->history;
    call          = call_of(coll);
    comm->history =
        mix(mix(mix(comm->history, call.op), call.what), call.bytes) | 1;
    comm->calls[call.number % UMI_COMM_CALLS] = call;
}

/* Find the call with that number: among the last ones, or one that is under
 * way. False: it is too long ago, or to come. */
static bool
find(const umx_comm *comm, uint64_t number, umi_comm_call *call)
{
    *call = comm->calls[number % UMI_COMM_CALLS];
    if (number != 0 && call->number == number) {
        return true;
    }
    UMI_LIST_FOREACH(node, &comm->colls) {
        const umi_comm_coll *coll = umi_container_of(node, umi_comm_coll, node);

        if (coll->number == number) {
            *call = call_of(coll);
            return true;
        }
    }
    return false;
}

/* ---- those of others -----------------------------------------------------
 */

/* Revoke the communicator, whose ranks have called different operations. */
static void
fail(umx_comm *comm, int rank, const umi_comm_call *named, const char *text)
{
    umi_comm_revoke(comm, rank, UMX_ERR_INVALID_PARAM, false,
                    "%s (operation %llu): %s",
                    umi_comm_coll_name((unsigned)named->op),
                    (unsigned long long)named->number, text);
}

#define NAME_INDEXED(type)                                          \
    [UMX_INT8_##type] = "int8", [UMX_INT16_##type] = "int16",       \
    [UMX_INT32_##type] = "int32", [UMX_INT64_##type] = "int64",     \
    [UMX_UINT8_##type] = "uint8", [UMX_UINT16_##type] = "uint16",   \
    [UMX_UINT32_##type] = "uint32", [UMX_UINT64_##type] = "uint64", \
    [UMX_FLOAT32_##type] = "float32", [UMX_FLOAT64_##type] = "float64"

/* Those of pairs are the names of their values. */
static const char *const dtype_names[] = {
    [UMX_INT8] = "int8",           [UMX_INT16] = "int16",
    [UMX_INT32] = "int32",         [UMX_INT64] = "int64",
    [UMX_UINT8] = "uint8",         [UMX_UINT16] = "uint16",
    [UMX_UINT32] = "uint32",       [UMX_UINT64] = "uint64",
    [UMX_FLOAT32] = "float32",     [UMX_FLOAT64] = "float64",
    [UMX_COMPLEX64] = "complex64", [UMX_COMPLEX128] = "complex128",
    [UMX_BOOL] = "bool",           [UMX_FLOAT16] = "float16",
    [UMX_BFLOAT16] = "bfloat16",   NAME_INDEXED(INT32),
    NAME_INDEXED(INT64),
};

static const char *const op_names[] = {
    [UMX_SUM] = "sum",       [UMX_PROD] = "prod", [UMX_MIN] = "min",
    [UMX_MAX] = "max",       [UMX_AVG] = "avg",   [UMX_LAND] = "land",
    [UMX_LOR] = "lor",       [UMX_LXOR] = "lxor", [UMX_BAND] = "band",
    [UMX_BOR] = "bor",       [UMX_BXOR] = "bxor", [UMX_MAXLOC] = "maxloc",
    [UMX_MINLOC] = "minloc",
};

/* Name the number `i` - 1 of `count` names, as in `what` of a reduction. */
static const char *
name_of(const char *const *names, size_t count, uint64_t i)
{
    return (i != 0 && i <= count && names[i - 1] != NULL) ? names[i - 1] : "?";
}

static const char *
dtype_of(uint64_t what)
{
    return name_of(dtype_names, sizeof(dtype_names) / sizeof(*dtype_names),
                   what >> 32 & 0xffff);
}

static const char *
op_of(uint64_t what)
{
    return name_of(op_names, sizeof(op_names) / sizeof(*op_names), what >> 48);
}

/* Say how two calls differ. */
static void
describe(char *text, size_t size, const umx_comm *comm, int rank,
         const umi_comm_call *theirs, const umi_comm_call *own)
{
    if (theirs->op != own->op) {
        (void)snprintf(text, size, "rank %d has called %s, rank %d %s", rank,
                       umi_comm_coll_name((unsigned)theirs->op), comm->rank,
                       umi_comm_coll_name((unsigned)own->op));
    } else if ((uint32_t)theirs->what != (uint32_t)own->what) {
        (void)snprintf(text, size,
                       "the root is %d on rank %d, and %d on rank %d",
                       (int)(uint32_t)theirs->what, rank,
                       (int)(uint32_t)own->what, comm->rank);
    } else if (theirs->what != own->what) {
        (void)snprintf(text, size,
                       "rank %d combines %s by %s, rank %d %s by %s", rank,
                       dtype_of(theirs->what), op_of(theirs->what), comm->rank,
                       dtype_of(own->what), op_of(own->what));
    } else {
        (void)snprintf(text, size, "rank %d gives %llu bytes, rank %d %llu",
                       rank, (unsigned long long)theirs->bytes, comm->rank,
                       (unsigned long long)own->bytes);
    }
}

/* The calls before `number` differ, and it is not known from which on: list the
 * last ones of this rank. */
static void
describe_before(char *text, size_t size, const umx_comm *comm, int rank,
                uint64_t number)
{
    uint64_t first = (number > LISTED) ? number - LISTED : 1;
    size_t   len;

    len = (size_t)snprintf(text, size,
                           "ranks %d and %d have called different operations "
                           "before it; the last ones of rank %d were",
                           rank, comm->rank, comm->rank);
    for (uint64_t i = first; i < number && len < size; i++) {
        umi_comm_call call;
        bool          is_known = find(comm, i, &call);

        len += (size_t)snprintf(
            text + len, size - len, "%s %s", (i == first) ? "" : ",",
            is_known ? umi_comm_coll_name((unsigned)call.op) : "?");
    }
}

static bool
is_equal(const umi_comm_call *a, const umi_comm_call *b)
{
    return a->op == b->op && a->what == b->what && a->bytes == b->bytes;
}

bool
umi_comm_call_check(umx_comm *comm, int rank, const umi_comm_call *theirs)
{
    umi_comm_call own;
    char          text[UMI_COMM_REASON_MAX];

    if (comm->is_revoked || comm->is_closed) {
        return false;
    }
    if (!find(comm, theirs->number, &own) ||
        (is_equal(&own, theirs) && own.history == theirs->history)) {
        return true;
    }
    if (is_equal(&own, theirs)) {
        describe_before(text, sizeof(text), comm, rank, theirs->number);
    } else {
        describe(text, sizeof(text), comm, rank, theirs, &own);
    }
    fail(comm, rank, &own, text);
    return false;
}

void
umi_comm_call_refuse(umx_comm *comm, int rank, const umi_comm_call *theirs)
{
    umi_comm_call own;
    char          text[UMI_COMM_REASON_MAX];

    if (umi_comm_call_check(comm, rank, theirs) &&
        !find(comm, theirs->number, &own)) {
        (void)snprintf(text, sizeof(text),
                       "rank %d has called it, and rank %d has ended another "
                       "operation with that number",
                       rank, comm->rank);
        fail(comm, rank, theirs, text);
    }
}
