/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file joint.h  What all ranks of a communicator make together, and what ends
 * it: a symmetric heap (shmem.h), outputs of maps (outputs.h), a group of experts
 * (moe.h), a proxy (proxy.h). Each of these has one, by umx_shmem_joint() and
 * others, which lasts as long.
 *
 *   MEETING --all ranks have come--> OPEN --given back, a failure--> ENDED
 *      |                                                               ^
 *      +------- cancelled, late, or the ranks do not agree ------------+
 *
 * All are made alike:
 *
 * - The request that makes it is cancelled: it ends with UMX_ERR_CANCELED here,
 *   and with UMX_ERR_RANK_FAILED on the other ranks, which name this one.
 * - Not all ranks have come within the time limit, which is that of the
 *   communicator unless the caller gives another one: UMX_ERR_TIMED_OUT here,
 *   and UMX_ERR_RANK_FAILED on the others. umx_joint_reason() names those that
 *   had not come.
 * - It is given back, or its worker is destroyed, while it is made: as if its
 *   request was cancelled. Later, operations under way end, and calls fail with
 *   UMX_ERR_CLOSED. Both may happen any number of times.
 * - A rank ends: the request ends with UMX_ERR_RANK_FAILED.
 * - There is one rank only: the creating call returns UMX_OK.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_JOINT_H
#define UMX_JOINT_H

#include <umx/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_joint umx_joint;

/** UMX_INPROGRESS: the ranks have not met; UMX_OK: it can be used; else why it
 * has ended. */
UMX_API umx_status umx_joint_status(const umx_joint *joint);

/** Which rank has failed, and why, for people: false if none has, as far as is
 * known. It stays known when the object has ended, and `*why_p` as long as
 * `joint`. */
UMX_API bool umx_joint_get_failure(umx_joint *joint, umx_comm_failure *failure,
                                   const char **why_p);

/** Why the object was not made, or why the last call of all ranks has failed on
 * all, for people; or "". */
UMX_API const char *umx_joint_reason(const umx_joint *joint);

#ifdef __cplusplus
}
#endif
#endif
