/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.h: a communicator. */
#ifndef UCP_EXT_COMM_COMMUNICATOR_H
#define UCP_EXT_COMM_COMMUNICATOR_H

#include "object/owned.h"

#include <umx/umx.h>

typedef struct CommObject {
    OWNED_HEAD;
    umx_comm *umx; /* NULL until it begins to be made */
    bool      is_closed;
    char      allows_pickle; /* those that are made of it do so, too */
} CommObject;

/* A new object of the type of `like`, for umx_comm_split(). */
CommObject *comm_new_like(const CommObject *like);

/* -1 with an exception unless this thread may call libumx with it. */
int comm_check(const CommObject *comm);

/* The exception of a status, with the reason that libumx gives; `rank` is the
 * other side of a message, or -1. */
PyObject *comm_error(const CommObject *comm, umx_status status, const char *op,
                     int rank);

/* UCXRankFailed for a failure that is known, whose text is `reason`. */
PyObject *comm_lost_error(mod_state *st, const umx_comm_failure *failure,
                          const char *reason, const char *op);

/* The ranks that a failure names as late, as a tuple. */
PyObject *comm_late(const umx_comm_failure *failure);

/* The exception of a communicator that has failed. */
PyObject *comm_failure_error(mod_state *st, const umx_comm *comm,
                             const char *op);

/* ucp.Status: what a receive has got. */
extern PyStructSequence_Desc comm_status_desc;
PyObject *comm_status_new(mod_state *st, int source, uint64_t tag, size_t len);

/* The rank `number` of the communicator; `what` is for errors. -1 with an
 * exception; also if it is not made, or belongs to another process. */
int comm_parse_rank(const CommObject *comm, PyObject *number, const char *what,
                    int *rank_p);

#endif
