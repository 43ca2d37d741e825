/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_sum.c: the weighted sums of umx_moe_sum(), of rows that lie anywhere:
 * what moe.py sums with after mpi4py has moved the rows. */
#include <stdlib.h>

#include "moe/rows.h"

int moe_sum(void *out, const void *const *data, const float *weights,
            size_t num_tokens, size_t num_topk, size_t hidden);

/* bfloat16 rows and sums. 0; -1: out of memory. */
int
moe_sum(void *out, const void *const *data, const float *weights,
        size_t num_tokens, size_t num_topk, size_t hidden)
{
    umi_moe_row *rows = calloc(num_topk, sizeof(*rows));

    if (rows == NULL) {
        return -1;
    }
    for (size_t t = 0; t < num_tokens; t++) {
        for (size_t k = 0; k < num_topk; k++) {
            rows[k].data   = data[t * num_topk + k];
            rows[k].weight = weights[t * num_topk + k];
        }
        umi_moe_add_rows((char *)out + t * hidden * 2, UMX_MOE_BF16, rows,
                         num_topk, UMX_MOE_BF16, hidden);
    }
    free(rows);
    return 0;
}
