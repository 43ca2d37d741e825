/* SPDX-License-Identifier: BSD-3-Clause */
/* joint.h: the life of what all ranks of a communicator make together. What a
 * layer makes begins with a umx_joint, and its class says what the layer adds.
 *
 * The ranks meet on a communicator of the object's own, derived from the
 * user's, by a region with the memory and the record of each. The object ends
 * once, whatever ends it, and leaves the communicator then: what that has said
 * of its failure is kept before.
 *
 * Thread: the worker's owner, or its progress thread, under the worker's lock.
 */
#ifndef UMI_JOINT_H
#define UMI_JOINT_H

#include <stdatomic.h>
#include <umx/joint.h>
#include <umx/layer.h>
#include <umx/region.h>

#include "util/refcnt.h"

enum {
    UMI_JOINT_REASON = 320 /* bytes */
};

/*   MEETING --on_met()--> OPEN --umi_joint_end()--> ENDED
 *      |                                              ^
 *      +--- umi_joint_end(): also cancelled, late ----+  */
typedef enum umi_joint_state {
    UMI_JOINT_MEETING, /* calls fail with UMX_ERR_CLOSED */
    UMI_JOINT_OPEN,
    UMI_JOINT_ENDED /* joint->status says why: calls fail */
} umi_joint_state;

typedef struct umi_joint_class {
    const char *name;  /* of what is made, for people: "heap" */
    uint64_t    label; /* of the derived communicator */
    /* Post what the ranks meet by. NULL: a region of what umi_joint_offer says.
     */
    umx_status (*post)(umx_joint *joint, const umx_op_params *op,
                       umx_request **req_p);
    /* All ranks have come: compare what they have told. What this returns is
     * the end of the creation; UMX_INPROGRESS: umi_joint_opened() follows.
     * NULL: they need not agree. */
    umx_status (*on_met)(umx_joint *joint);
    /* End what is under way with `status`: the object has ended, and had been
     * made if `was_open`. The communicator is there still. Called
     * once. NULL: all ends with the communicator. */
    void (*on_end)(umx_joint *joint, umx_status status, bool was_open);
    /* umi_joint_watch(): a rank has failed; or all others have left, as they
     * may. It has not ended. */
    void (*on_failed)(umx_joint *joint, bool has_failed);
    /* The worker is being destroyed, and the object has ended, perhaps before:
     * end what has been left. NULL: nothing is. */
    void (*on_destroy)(umx_joint *joint);
    /* The last reference has been put. */
    void (*free)(umx_joint *joint);
} umi_joint_class;

struct umx_joint {
    const umi_joint_class *cls;
    umx_dependent          dependent;
    umx_worker            *worker; /* NULL: it is being destroyed */
    umi_joint_state        state;
    bool                   has_failed; /* a rank has; any thread reads it */
    umx_status             status;     /* ENDED: why */
    umi_shared_refs        refs;       /* the user's, and of parts under way */
    int                    rank;
    int                    size;
    umx_comm              *comm;   /* derived, owned; NULL once it is left */
    umx_region            *region; /* NULL: there is none */
    /* the meeting */
    umx_request *req;     /* the creator's; NULL: it is complete */
    umx_request *meeting; /* under way */
    umx_timer    late;
    /* the end */
    umx_request *watch;
    bool         is_agreed; /* all ranks find by themselves what is wrong */
    char         reason[UMI_JOINT_REASON]; /* or "" */
    /* the first failure */
    bool             is_told; /* the communicator has said who */
    umx_comm_failure failure; /* rank -1: none that is known */
    char             why[UMI_JOINT_REASON];
};

/* What this rank tells the others. */
typedef struct umi_joint_offer {
    umx_memh   *memh; /* or NULL */
    const void *record;
    size_t      len;
    bool        has_timeout; /* else it is that of the communicator */
    uint64_t    timeout_ns;
} umi_joint_offer;

#define UMI_JOINT_LOCK(of) UMX_LAYER_LOCK((of)->joint.worker)

/* Prepare an object of zeros, and derive its communicator. If that fails the
 * object has ended; umi_joint_put() gives it back. */
umx_status umi_joint_init(umx_joint *joint, const umi_joint_class *cls,
                          umx_comm *comm);

/* Meet the other ranks. What this returns is what a creating call returns; if
 * it fails the object has ended, and its first reference has been put. */
umx_status umi_joint_meet(umx_joint *joint, const umi_joint_offer *offer,
                          const umx_op_params *op, umx_request **req_p);

/* Both, for an object that needs nothing in between. */
umx_status umi_joint_create(umx_joint *joint, const umi_joint_class *cls,
                            umx_comm *comm, const umi_joint_offer *offer,
                            const umx_op_params *op, umx_request **req_p);

/* The creation has ended for which on_met() has returned UMX_INPROGRESS. */
void umi_joint_opened(umx_joint *joint, umx_status status);

/* The end. While the ranks meet the others are told why, and by whom. */
void umi_joint_end(umx_joint *joint, umx_status status);

/* Leave the communicator, once the object does not need it. */
void umi_joint_leave(umx_joint *joint);

/* Hear of failures: on_failed() is called once. */
umx_status umi_joint_watch(umx_joint *joint);

/* Note why the ranks do not agree, which all find alike. Returns `status`. */
umx_status umi_joint_refuse(umx_joint *joint, umx_status status,
                            const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Note that a rank has failed, unless the communicator has said who. The text
 * says what has. */
void umi_joint_note_failure(umx_joint *joint, int rank, umx_status cause,
                            const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Keep the failure that another communicator of the object tells of, unless one
 * is known. */
void umi_joint_keep(umx_joint *joint, const umx_comm_failure *failure,
                    const char *why);

/* Keep what the communicator says of its failure. True: somebody has failed. */
bool umi_joint_learn(umx_joint *joint);

/* Complete a request of the object that has not been cancelled: `*req_p` is
 * NULL then. */
void umi_joint_complete(umx_request **req_p, umx_status status);

void umi_joint_put(umx_joint *joint);

static inline void
umi_joint_hold(umx_joint *joint)
{
    umi_shared_refs_get(&joint->refs);
}

/* UMX_OK, UMX_ERR_CLOSED. */
static inline umx_status
umi_joint_check(const umx_joint *joint)
{
    return (joint->state == UMI_JOINT_OPEN && joint->worker != NULL) ?
               UMX_OK :
               UMX_ERR_CLOSED;
}

#endif
