/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file comm.h  A communicator: processes with ranks 0 to size - 1.
 *
 * Ranks send each other tagged messages here, and call collective operations
 * (umx/collective.h) in the same order. Thread: the worker's owner.
 *
 * A communicator fails as a whole: when a rank ends, leaves an operation, or
 * calls another one than the others, the communicator is revoked on every rank.
 * Operations under way, and all later ones, end with UMX_ERR_RANK_FAILED then,
 * and umx_comm_failure() says which rank failed, in what, and why.
 */
#ifndef UMX_COMM_H
#define UMX_COMM_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sockaddr;

typedef struct umx_comm umx_comm;

enum {
    UMX_RANK_ANY      = -1, /* bootstrap: the root assigns one */
    UMX_ANY_SOURCE    = -1,
    UMX_COMM_SIZE_MAX = 65536,
    UMX_COMM_LATE_MAX = 64, /* ranks that a failure names as late */
    UMX_COMM_NAME_MAX = 63 /* bytes */
};

enum umx_comm_field {
    UMX_COMM_FIELD_TIMEOUT   = 1u << 0, /* absent: 60 s */
    UMX_COMM_FIELD_NAME      = 1u << 1, /* absent: "" */
    UMX_COMM_FIELD_HEARTBEAT = 1u << 2  /* absent: UMX_KEEPALIVE_NS */
};

/** How the ranks find each other: all connect to the root, which is rank 0. */
typedef struct umx_comm_params {
    uint64_t field_mask;
    int      rank; /* 0 to size - 1, or UMX_RANK_ANY */
    int      size;
    /* The root listens here, and the others connect to it. NULL: the ranks know
     * the worker address of the root. */
    const struct sockaddr *addr;
    size_t                 addr_len;
    const void            *root; /* worker address, if `addr` is NULL */
    size_t                 root_len;
    uint64_t               timeout_ns; /* until all ranks have come */
    /* Ranks with different names do not meet. */
    const char *name;
    /* A rank that has not been heard of for so long, up to half as long again,
     * has failed; 10 ms at least. So has one to whose host the network has been
     * silent for so long. 0: ranks and networks may be silent for any time. */
    uint64_t heartbeat_ns;
} umx_comm_params;

/**
 * Make a communicator of `size` processes. Complete when all have come.
 *
 * Ownership: the caller's reference, which umx_comm_destroy() gives back, also
 *            if the request fails.
 * Completion: UMX_OK; UMX_ERR_TIMED_OUT, UMX_ERR_REJECTED and others, with
 *             umx_comm_reason()
 * @return UMX_INPROGRESS; UMX_OK if size is 1; UMX_ERR_INVALID_PARAM,
 *         UMX_ERR_OUT_OF_RANGE (rank, size), UMX_ERR_INVALID_ADDR;
 * UMX_ERR_BUSY: the root's address is in use; UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_create(umx_worker            *worker,
                                                  const umx_comm_params *params,
                                                  const umx_op_params   *op,
                                                  umx_comm             **comm_p,
                                                  umx_request          **req_p);

/** Why it was not made, or has been revoked, for people; "" if neither. */
UMX_API const char *umx_comm_reason(const umx_comm *comm);

/** -1 until the communicator is made. */
UMX_API int         umx_comm_rank(const umx_comm *comm);
/** Tell how many ranks the communicator has. */
UMX_API int         umx_comm_size(const umx_comm *comm);
/** Tell the name of the communicator. */
UMX_API const char *umx_comm_name(const umx_comm *comm);

/**
 * The process that is `rank` (0 to size - 1) of a communicator that is made, by
 * numbers that are the same in every communicator that has this process, on
 * every rank: its place among those that have connected together, and in
 * `*group_p` what identifies these.
 */
UMX_API int umx_comm_member(const umx_comm *comm, int rank, uint64_t *group_p);

/** While it is being made on the root: how many ranks have come. */
UMX_API int umx_comm_num_arrived(const umx_comm *comm);

/** What ended a communicator. */
typedef struct umx_comm_failure {
    int         rank;  /* of the communicator; -1: no rank's fault */
    const char *op;    /* the operation here that was under way; or "" */
    uint64_t    op_id; /* its number; 0: none */
    umx_status  cause;
    uint64_t    group;  /* `rank` among all that have connected together, for */
    int         member; /* umx_comm_abort_for(); -1: none */
    /* An operation was cancelled, or its time has run out: the ranks that had
     * not come to it, as far as was known. */
    int num_late;
    int late[UMX_COMM_LATE_MAX];
} umx_comm_failure;

/** True if it is revoked; then `*failure` says why. `op` lasts as long as the
 * communicator. */
UMX_API bool umx_comm_get_failure(const umx_comm   *comm,
                                  umx_comm_failure *failure);

/**
 * Write to `text` which way messages of collective operations take from this
 * rank to `rank`, and why, for people.
 *
 * @return as snprintf(): bytes of the whole text, without the '\0'
 */
UMX_API size_t umx_comm_explain(const umx_comm *comm, int rank, char *text,
                                size_t size);

/** Revoke it on every rank, with a reason (or NULL) for people. */
UMX_API void umx_comm_abort(umx_comm *comm, const char *reason);

/** umx_comm_abort() because another communicator has failed, perhaps one that
 * was derived from this one: the rank whose fault that was is named, if it
 * takes part in this one. */
UMX_API void umx_comm_abort_for(umx_comm *comm, const umx_comm_failure *failure,
                                const char *reason);

/**
 * Tell that an operation of a layer with `rank` has failed with `status`. A
 * rank that ends, or whose communicator is revoked, takes its memory away
 * before the others hear of that. So this rank waits for the news, for a second
 * at most, and then revokes the communicator, naming `rank`.
 *
 * @param why  for people; may be NULL
 * @return false: the status says nothing about the rank, and nothing is done
 */
UMX_API bool umx_comm_doubt(umx_comm *comm, int rank, umx_status status,
                            const char *why);

/**
 * Leave it: the other ranks finish what this one has taken part in, and later
 * operations that need it name it as gone. No operations after this. Collective
 * operations that are under way abort it.
 */
UMX_API void umx_comm_close(umx_comm *comm);

/** Give it back. One that is not closed is left, as by umx_comm_close();
 * operations under way complete in the background. */
UMX_API void umx_comm_destroy(umx_comm *comm);

/**
 * Leave all communicators of a worker that is about to end, those that were
 * made last first. They are not given back.
 *
 * @param failure  NULL; else each is aborted first, as by umx_comm_abort_for()
 * @param reason   for people, if `failure` is not NULL; may be NULL
 */
UMX_API void umx_comm_close_all(umx_worker             *worker,
                                const umx_comm_failure *failure,
                                const char             *reason);

/* ---- for libraries on top -------------------------------------------------
 */

/**
 * Make a communicator of the same ranks, at once: no message is sent. The nth
 * of a label here belongs to the nth of that label on the other ranks. It is
 * revoked with `comm`, and closed and given back by itself.
 *
 * @return UMX_OK; UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_derive(umx_comm  *comm,
                                                  uint64_t   label,
                                                  umx_comm **comm_p);

/** The worker; NULL: it has been destroyed. */
UMX_API umx_worker *umx_comm_get_worker(const umx_comm *comm);

/** How long the ranks wait until all have come: umx_comm_params.timeout_ns of
 * the communicator that this one comes from. */
UMX_API uint64_t umx_comm_get_timeout(const umx_comm *comm);

/**
 * Watch a rank, or for UMX_ANY_SOURCE all others: complete with
 * UMX_ERR_RANK_FAILED when it has left, or all have, and no message of theirs is
 * on its way; and when the communicator is revoked, which umx_comm_get_failure()
 * tells. With UMX_ERR_CANCELED when the communicator is closed here. A rank that
 * has left before is no failure of the call.
 *
 * @return UMX_INPROGRESS; as umx_comm_irecv()
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_watch(umx_comm *comm, int source,
                                                 const umx_op_params *params,
                                                 umx_request        **req_p);

/** Write to `late` the ranks that have not come to the first collective
 * operation that is under way, as far as is known; UMX_COMM_LATE_MAX at most.
 * @return how many */
UMX_API int umx_comm_find_late(umx_comm *comm, int *late);

/**
 * The endpoint on which `rank`, another than this one, is reached, as long as
 * the communicator is well. It is not the caller's.
 *
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE, UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED,
 *         what umx_ep_connect_address() says
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_get_ep(umx_comm *comm, int rank,
                                                  umx_ep **ep_p);

/**
 * The address of the worker of `rank`, this one included, for
 * umx_ep_connect_address(), as long as the communicator is well. It is the
 * communicator's.
 *
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE, UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_get_address(umx_comm    *comm,
                                                       int          rank,
                                                       const void **address_p,
                                                       size_t      *len_p);

/* ---- messages ------------------------------------------------------------
 */

/** What a receive has got. */
typedef struct umx_comm_status {
    int      source;
    uint32_t seq; /* its place in the queue, for umx_comm_unrecv() */
    uint64_t tag;
    size_t   length; /* bytes of the message, also if it was longer than the
                        buffer */
} umx_comm_status;

/**
 * Send `buf` to a rank, this one included. Messages of one rank to another are
 * matched in their order, whatever their tags.
 * @return UMX_OK; UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE: no such rank;
 *         UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_isend(umx_comm *comm, int dest,
                                                 uint64_t             tag,
                                                 const umx_buffer    *buf,
                                                 const umx_op_params *params,
                                                 umx_request        **req_p);

/**
 * Receive the next message of `source`, or of any rank, whose tag is `tag` in
 * the bits of `mask`. A longer message is consumed, and ends with
 * UMX_ERR_MESSAGE_TRUNCATED. A cancelled receive takes no message. The receive
 * ends with UMX_ERR_RANK_FAILED when `source` has left, or for any source all
 * other ranks, and no message of theirs is left that it could take.
 *
 * @param[out] result  written on UMX_OK and UMX_ERR_MESSAGE_TRUNCATED; else
 *                     umx_comm_result()
 * @return as umx_comm_isend()
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_irecv(umx_comm *comm, int source,
                                                 uint64_t tag, uint64_t mask,
                                                 const umx_buffer    *buf,
                                                 const umx_op_params *params,
                                                 umx_request        **req_p,
                                                 umx_comm_status     *result);

/** What a completed request of umx_comm_irecv() or umx_comm_wait_message() has
 * got; in and after `on_done`. */
UMX_API const umx_comm_status *umx_comm_result(const umx_request *req);

/**
 * Put the message that a receive which completed with UMX_OK has left in `buf`
 * back where it was in the queue, by copy: for a receiver that was cancelled
 * after completion. `got` is what the receive has got. If it cannot be put back
 * the communicator is revoked.
 * @return UMX_OK, also if nobody can receive any more; UMX_ERR_NO_MEMORY,
 *         UMX_ERR_UNSUPPORTED: not host memory
 */
UMX_API umx_status umx_comm_unrecv(umx_comm *comm, const umx_comm_status *got,
                                   const umx_buffer *buf);

/** Look for a message that no receive has taken: UMX_OK or UMX_ERR_NO_MESSAGE.
 * Takes nothing. */
UMX_API UMX_MUST_CHECK umx_status umx_comm_iprobe(umx_comm *comm, int source,
                                                  uint64_t tag, uint64_t mask,
                                                  umx_comm_status *result);

/** Wait until umx_comm_iprobe() has something to see. */
UMX_API UMX_MUST_CHECK umx_status umx_comm_wait_message(
    umx_comm *comm, int source, uint64_t tag, uint64_t mask,
    const umx_op_params *params, umx_request **req_p, umx_comm_status *result);

/** A message that has been taken off the queue without its bytes. */
typedef struct umx_comm_message umx_comm_message;

/** umx_comm_iprobe() that takes the message, for umx_comm_mrecv(). */
UMX_API UMX_MUST_CHECK umx_status umx_comm_improbe(umx_comm *comm, int source,
                                                   uint64_t tag, uint64_t mask,
                                                   umx_comm_message **message_p,
                                                   umx_comm_status   *result);

/**
 * Receive its bytes.
 * @param[in,out] message_p  set to NULL if the call has taken the message over
 * @return as umx_comm_irecv(); UMX_ERR_BUFFER_TOO_SMALL
 */
UMX_API UMX_MUST_CHECK umx_status umx_comm_mrecv(umx_comm_message   **message_p,
                                                 const umx_buffer    *buf,
                                                 const umx_op_params *params,
                                                 umx_request        **req_p);

/** Put it back where it was in the queue. Consumes the handle. */
UMX_API void umx_comm_message_return(umx_comm_message *message);

#ifdef __cplusplus
}
#endif
#endif
