/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file collective.h  Operations that every rank of a communicator calls, in
 * the same order. Several may be under way: the order of the calls decides
 * which belong together. Thread: the worker's owner.
 *
 * Counts and displacements are bytes, arrays with an entry for each rank, and
 * read during the call. Memory is lent until completion. Buffers that are
 * written must not overlap those that are read, but for UMX_IN_PLACE where it
 * is named.
 *
 * Buffers with a layout are taken in host memory, by copies of their items, to
 * which counts and displacements apply: what is sent is copied in the call, and
 * what is received when the operation ends with UMX_OK. Nothing is written to
 * them if it fails.
 *
 * All return UMX_OK, UMX_INPROGRESS; UMX_ERR_INVALID_PARAM,
 * UMX_ERR_OUT_OF_RANGE (a root that is no rank, a piece that does not lie in
 * its buffer); UMX_ERR_UNSUPPORTED (a type or an operation on it, a layout in
 * device memory); UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY. A
 * collective operation that is cancelled revokes the communicator.
 */
#ifndef UMX_COLLECTIVE_H
#define UMX_COLLECTIVE_H

#include <umx/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Instead of the buffer to send: what this rank contributes lies in the buffer
 * that is received into, where its own part goes. */
#define UMX_IN_PLACE ((const umx_buffer *)0)

/** Complete when every rank has called it. */
UMX_API UMX_MUST_CHECK umx_status umx_barrier(umx_comm            *comm,
                                              const umx_op_params *params,
                                              umx_request        **req_p);

/** The root's bytes to every rank, which all give as many bytes of memory. */
UMX_API UMX_MUST_CHECK umx_status umx_bcast(umx_comm *comm, int root,
                                            const umx_buffer    *buf,
                                            const umx_op_params *params,
                                            umx_request        **req_p);

/** Pieces of one buffer. `displs` NULL: one after the other. */
typedef struct umx_pieces {
    const size_t *counts;
    const size_t *displs;
} umx_pieces;

/**
 * Every rank's `send` to the root, rank r's at piece r of `recv`. On other
 * ranks `recv` and `pieces` are not read. UMX_IN_PLACE on the root.
 */
UMX_API UMX_MUST_CHECK umx_status umx_gatherv(
    umx_comm *comm, int root, const umx_buffer *send, const umx_buffer *recv,
    const umx_pieces *pieces, const umx_op_params *params, umx_request **req_p);

/** Piece r of the root's `send` to `recv` of rank r. On other ranks `send` and
 * `pieces` are not read. The root may give NULL for `recv`: its piece stays. */
UMX_API UMX_MUST_CHECK umx_status umx_scatterv(
    umx_comm *comm, int root, const umx_buffer *send, const umx_pieces *pieces,
    const umx_buffer *recv, const umx_op_params *params, umx_request **req_p);

/** umx_gatherv() to every rank. UMX_IN_PLACE. */
UMX_API UMX_MUST_CHECK umx_status umx_allgatherv(
    umx_comm *comm, const umx_buffer *send, const umx_buffer *recv,
    const umx_pieces *pieces, const umx_op_params *params, umx_request **req_p);

/** Piece r of `send` to rank r, which has it at the piece of this rank in its
 * `recv`. With UMX_IN_PLACE the pieces of `recv` are sent, of which a copy is
 * made in the call, and `send_pieces` is not read. */
UMX_API UMX_MUST_CHECK umx_status umx_alltoallv(
    umx_comm *comm, const umx_buffer *send, const umx_pieces *send_pieces,
    const umx_buffer *recv, const umx_pieces *recv_pieces,
    const umx_op_params *params, umx_request **req_p);

/** Get memory for `buf->len` bytes from `source`: set `buf->data`, and the type
 * of memory. Any status but UMX_OK revokes the communicator. */
typedef umx_status (*umx_alloc_buffer_fn)(int source, umx_buffer *buf,
                                          void *arg);

/**
 * sends[r] to rank r; recvs[r] becomes what rank r sends here, of a length that
 * only its sender need know.
 *
 * Ownership: `recvs`, with an entry for each rank, is lent until completion,
 *            with zeros at first. `alloc` is called inside this call and in (P)
 *            calls, for each rank that sends something; NULL: malloc(). What it
 *            has got in `recvs` is the caller's, also if the operation fails.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_alltoall_buffers(umx_comm *comm, const umx_buffer *sends, umx_buffer *recvs,
                     umx_alloc_buffer_fn alloc, void *arg,
                     const umx_op_params *params, umx_request **req_p);

typedef enum umx_dtype {
    UMX_INT8,
    UMX_INT16,
    UMX_INT32,
    UMX_INT64,
    UMX_UINT8,
    UMX_UINT16,
    UMX_UINT32,
    UMX_UINT64,
    UMX_FLOAT32,
    UMX_FLOAT64,
    UMX_COMPLEX64,  /* two of FLOAT32; no MIN, no MAX */
    UMX_COMPLEX128, /* two of FLOAT64; no MIN, no MAX */
    UMX_BOOL,       /* bytes of 0 and 1: SUM and MAX are or, PROD and MIN and */
    UMX_FLOAT16,    /* IEEE 754 binary16 */
    UMX_BFLOAT16,   /* the upper half of FLOAT32 */
    /* Pairs, for MINLOC and MAXLOC, as C lays out a struct of a value of the
     * first type and an index of the second one. */
    UMX_INT8_INT32,
    UMX_INT16_INT32,
    UMX_INT32_INT32,
    UMX_INT64_INT32,
    UMX_UINT8_INT32,
    UMX_UINT16_INT32,
    UMX_UINT32_INT32,
    UMX_UINT64_INT32,
    UMX_FLOAT32_INT32,
    UMX_FLOAT64_INT32,
    UMX_INT8_INT64,
    UMX_INT16_INT64,
    UMX_INT32_INT64,
    UMX_INT64_INT64,
    UMX_UINT8_INT64,
    UMX_UINT16_INT64,
    UMX_UINT32_INT64,
    UMX_UINT64_INT64,
    UMX_FLOAT32_INT64,
    UMX_FLOAT64_INT64
} umx_dtype;

/**
 * Integers wrap. MIN and MAX of a NaN and anything are a NaN.
 *
 * FLOAT16 and BFLOAT16 are combined as FLOAT32, and the result is rounded once,
 * to the nearest number, and to the even one of two. AVG is the sum, divided by
 * the number of arrays before that.
 */
typedef enum umx_reduce_op {
    UMX_SUM,
    UMX_PROD,
    UMX_MIN, /* like MAX, not of complex numbers */
    UMX_MAX,
    UMX_AVG,  /* floats and complex numbers only */
    UMX_LAND, /* logical, of integers and BOOL: the result is 0 or 1 */
    UMX_LOR,
    UMX_LXOR,
    UMX_BAND, /* bitwise, of integers and BOOL */
    UMX_BOR,
    UMX_BXOR,
    UMX_MAXLOC, /* of pairs only: the pair with the largest value */
    UMX_MINLOC  /* and of several such pairs the one with the smallest index;
                   a NaN is found before any number, by both */
} umx_reduce_op;

enum {
    UMX_REDUCE_DEVICE_MAX = 256 * 1024 /* bytes */
};

/** Bytes of an item; 0: no such type. */
UMX_API size_t umx_dtype_size(umx_dtype dtype);

/** What is computed. */
typedef struct umx_reduction {
    umx_dtype     dtype;
    umx_reduce_op op;
} umx_reduction;

/** False: there is no such operation on the type. */
UMX_API bool umx_reduction_is_possible(const umx_reduction *what);

/**
 * Combine the arrays of all ranks item by item, in the order of the ranks:
 * ((x0 op x1) op x2) op ... So the result is the same bits on every rank and in
 * every run. `recv` as long as `send`; of the root only. UMX_IN_PLACE on the
 * root.
 *
 * Memory of a device is copied to the host and combined there, which is for few
 * bytes: at most UMX_REDUCE_DEVICE_MAX of `send` and of `recv` each, else
 * UMX_ERR_EXCEEDS_LIMIT.
 */
UMX_API UMX_MUST_CHECK umx_status umx_reduce(
    umx_comm *comm, int root, const umx_reduction *what, const umx_buffer *send,
    const umx_buffer *recv, const umx_op_params *params, umx_request **req_p);

/** umx_reduce() whose result every rank gets. UMX_IN_PLACE. */
UMX_API UMX_MUST_CHECK umx_status umx_allreduce(
    umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
    const umx_buffer *recv, const umx_op_params *params, umx_request **req_p);

/**
 * Combine as umx_reduce() does, for each rank the arrays of the ranks up to
 * this one. `recv` as long as `send`. UMX_IN_PLACE. AVG is divided by the
 * number of these arrays.
 */
UMX_API UMX_MUST_CHECK umx_status umx_scan(
    umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
    const umx_buffer *recv, const umx_op_params *params, umx_request **req_p);

/** umx_scan() of the ranks before this one. Rank 0 gets no result: its `recv`
 * stays as it is. */
UMX_API UMX_MUST_CHECK umx_status umx_exscan(
    umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
    const umx_buffer *recv, const umx_op_params *params, umx_request **req_p);

/**
 * umx_allreduce() of which rank r gets the r-th part. `counts`: the bytes of
 * the parts, whole items, the same on every rank, and `send->len` together;
 * NULL: equal parts. `recv` as long as this rank's part. With UMX_IN_PLACE
 * `recv` is the whole array, and the result goes to its beginning.
 */
UMX_API UMX_MUST_CHECK umx_status umx_reduce_scatter(
    umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
    const umx_buffer *recv, const size_t *counts, const umx_op_params *params,
    umx_request **req_p);

/**
 * Make communicators of the ranks that give the same color, in the order of
 * their keys and then of their ranks. Collective. A color below 0: none, and
 * `*comm_p` is NULL. The communicator is there when the request has completed
 * with UMX_OK; until then `*comm_p` is only good for umx_comm_destroy().
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_split(umx_comm *comm, int color,
                                                 int                  key,
                                                 const umx_op_params *params,
                                                 umx_comm           **comm_p,
                                                 umx_request        **req_p);

#ifdef __cplusplus
}
#endif
#endif
