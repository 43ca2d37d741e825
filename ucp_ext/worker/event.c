/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about workers: see base/event.h. */
#include "worker/event.h"

#include <stdlib.h>
#include <string.h>

static void
on_addressed(umx_worker *umx, void *arg)
{
    WorkerObject *self = arg;

    (void)umx;
    event_tell(self, &self->addressed);
}

umx_status
event_watch_addressed(WorkerObject *worker)
{
    return umx_worker_set_on_addressed(worker->umx, on_addressed, worker);
}

static void
add_line(const char *line, void *arg)
{
    text_lines *lines = arg;
    size_t      len   = strlen(line);
    char       *text  = NULL;

    if (lines->count < lines->max) {
        text = realloc(lines->text, lines->len + len + 1);
    }
    if (text == NULL) {
        lines->num_more++;
        return;
    }
    memcpy(text + lines->len, line, len);
    text[lines->len + len] = '\n';
    lines->text            = text;
    lines->len += len + 1;
    lines->count++;
}

umx_status
event_describe(const umx_worker *umx, text_lines *lines)
{
    return umx_worker_describe(umx, add_line, lines);
}

bool
event_submit(WorkerObject *worker, umx_call_fn fn, void *arg)
{
    return worker->umx != NULL && !worker->is_shutting &&
           umx_worker_submit(worker->umx, fn, arg) == UMX_OK;
}

bool
event_end(WorkerObject *worker, umx_call_fn fn, void *dropped)
{
    if (worker_is_forked(worker)) {
        return false; /* it is the parent's, which has it still */
    }
    if (worker->umx != NULL && !worker_is_mine(worker)) {
        (void)event_submit(worker, fn, dropped);
        return false;
    }
    fn(worker->umx, UMX_OK, dropped);
    return true;
}

static void
on_submitted_call(umx_worker *umx, umx_status status, void *arg)
{
    call *self = arg;

    (void)umx;
    (void)status; /* once closed: the loop calls it, if there is one still */
    event_tell(self->worker, &self->event);
}

bool
event_submit_call(WorkerObject *worker, call *self)
{
    return event_submit(worker, on_submitted_call, self);
}
