/* SPDX-License-Identifier: BSD-3-Clause */
/* unseen.h: failures of dropped operations of an endpoint that has ended.
 *
 * A peer that dies ends all operations that were pending, often a thousand
 * sends that nobody awaits. The program is told once: by what it awaits, in
 * which case all others are quiet, or else by one report with their number. The
 * report waits for the tasks that were woken by the same end. */
#ifndef UCP_EXT_OBJECT_UNSEEN_H
#define UCP_EXT_OBJECT_UNSEEN_H

#include "object/endpoint.h"

/* Is it the end of the connection that made an operation of it fail? */
bool endpoint_has_ended_by(const EndpointObject *endpoint, umx_status status);

/* Note that the program has been told of the end. */
void endpoint_note_seen(EndpointObject *endpoint);

/* Keep `exc`, the failure of a dropped operation, for a report, or let it go if
 * the program knows of the end. False: the caller has to report it. */
bool endpoint_keep_unseen(EndpointObject *endpoint, PyObject *exc,
                          const char *name);

/* Report what is kept; the endpoint is about to go. */
void endpoint_report_unseen(EndpointObject *endpoint);

/* A method: report what is kept, in so many turns of the event loop. */
PyObject *endpoint_report_soon(PyObject *op, PyObject *turns);

#endif
