/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c: a shuffler in umx_worker_describe(). */
#include <inttypes.h>
#include <stdio.h>

#include "shuffle/shuffle.h"
#include "util/lines.h"

/* Name the ranks that have not finished a partition of this one. */
static void
describe_unfinished(const umx_shuffler *sh, const umi_lines *lines)
{
    char   text[128] = "";
    size_t len       = 0;

    for (int rank = 0; rank < sh->size && sh->peers != NULL; rank++) {
        const umi_shuffle_peer *peer = &sh->peers[rank];

        if (rank != sh->rank && peer->sh != NULL &&
            !umi_shuffle_has_finished_all(peer) && len + 24 < sizeof(text)) {
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%d%s",
                                    (len != 0) ? ", " : "", rank,
                                    peer->is_gone ? " (gone)" : "");
        }
    }
    if (len != 0) {
        umi_lines_add(lines, "    not finished by ranks %s%s", text,
                      (len + 24 < sizeof(text)) ? "" : ", ...");
    }
    if (sh->num_unfinished != 0) {
        umi_lines_add(lines,
                      "    %" PRIu32 " partitions are not finished by this "
                      "rank itself",
                      sh->num_unfinished);
    }
}

void
umi_shuffle_describe(const umx_dependent *dependent, umx_line_fn fn, void *arg)
{
    const umx_shuffler *sh    = (const umx_shuffler *)(const void *)dependent;
    umi_lines           lines = {.fn = fn, .arg = arg};
    unsigned            num_waits = 0, num_inserts = 0;

    UMI_LIST_FOREACH(node, &sh->waits) {
        num_waits++;
    }
    UMI_LIST_FOREACH(node, &sh->inserts) {
        num_inserts++;
    }
    umi_lines_add(
        &lines,
        "  shuffle, rank %d of %d: %" PRIu32 " of %" PRIu32
        " partitions of this rank are complete, %u waits, %u inserts "
        "not released by the owners, %u messages being sent, %u chunks "
        "being read; holds %zu bytes",
        sh->rank, sh->size, sh->num_complete, sh->num_owned, num_waits,
        num_inserts, sh->num_sending, sh->num_fetching,
        sh->held_in + sh->held_small + sh->held_out);
    if (sh->stall != UMX_INPROGRESS || sh->lost != UMX_OK) {
        umi_lines_add(
            &lines, "    %s",
            umx_status_string((sh->lost != UMX_OK) ? sh->lost : sh->stall));
    }
    describe_unfinished(sh, &lines);
}
