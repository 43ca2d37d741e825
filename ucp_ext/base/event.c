/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about log lines and lists of texts: see event.h.
 */
#include "base/event.h"

#include "base/log.h"

#include <string.h>

/* ---- log lines: in any thread, without the GIL -------------------------
 */

static void
on_log(int level, const char *text, void *arg)
{
    (void)arg;
    log_put(level, text);
}

void
event_watch_log(bool is_wanted)
{
    umx_log_set(is_wanted ? on_log : NULL, NULL);
    umx_log_set_level(-1);
}

/* ---- walks -------------------------------------------------------------
 */

static void
add_pair(const char *first, const char *second, void *arg)
{
    text_pairs *pairs      = arg;
    size_t      first_len  = strlen(first) + 1;
    size_t      second_len = strlen(second) + 1;
    char       *texts;

    texts = realloc(pairs->texts, pairs->len + first_len + second_len);
    if (texts == NULL) {
        pairs->is_cut = true;
        return;
    }
    memcpy(texts + pairs->len, first, first_len);
    memcpy(texts + pairs->len + first_len, second, second_len);
    pairs->texts = texts;
    pairs->len += first_len + second_len;
    pairs->count++;
}

umx_status
event_list_transports(const umx_ep *ep, text_pairs *pairs)
{
    return umx_ep_transports(ep, add_pair, pairs);
}

umx_status
event_list_options(const umx_context_params *params, text_pairs *pairs,
                   int *bad_option_p)
{
    return umx_context_options(params, add_pair, pairs, bad_option_p);
}
