/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/numbers.h"

#include <stddef.h>

static const struct {
    const char *name;
    size_t      offset;
} fields[] = {
#define FIELD(name)                             \
    {                                           \
#name, offsetof(umx_worker_stats, name) \
    }
    FIELD(requests_in_use),
    FIELD(requests_peak),
    FIELD(requests_lost),
    FIELD(endpoints),
    FIELD(listeners),
    FIELD(unexpected_messages),
    FIELD(unexpected_bytes),
    FIELD(protocol_errors),
    FIELD(stray_messages),
    FIELD(wakeups),
    FIELD(spins),
    FIELD(spin_hits),
    FIELD(loans),
    FIELD(renewals),
    FIELD(extended_turns),
    FIELD(sent_messages),
    FIELD(sent_bytes),
    FIELD(received_messages),
    FIELD(received_bytes),
    FIELD(pending_sends),
    FIELD(pending_bytes),
    FIELD(waiting_sends),
    FIELD(rendezvous),
    FIELD(failed_operations),
    FIELD(timed_out_operations),
    FIELD(cancelled_operations),
    FIELD(failed_connections),
    FIELD(refused_connections),
    FIELD(missed_heartbeats),
#undef FIELD
};

/* Python 3.13's Py_ARRAY_LENGTH() is no constant expression. */
_Static_assert(sizeof(umx_worker_stats) ==
                   sizeof(fields) / sizeof(fields[0]) * sizeof(uint64_t),
               "enter the new member into `fields`");

PyObject *
numbers_as_dict(const umx_worker_stats *stats)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict != NULL && i < Py_ARRAY_LENGTH(fields); i++) {
        const char *at     = (const char *)stats + fields[i].offset;
        PyObject   *number = PyLong_FromUnsignedLongLong(
              *(const uint64_t *)(const void *)at);

        if (number == NULL ||
            PyDict_SetItemString(dict, fields[i].name, number) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(number);
    }
    return dict;
}
