/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/engines.h"

#include "ops/am.h"
#include "ops/tag.h"

static umx_status
create(umx_worker *worker, umi_engine **engine_p)
{
    umi_engine *engine;
    umx_status  status = umi_engine_create(worker, &engine);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_am_copy_handlers(engine);
    if (status != UMX_OK) {
        umi_engine_destroy(engine);
        return status;
    }
    *engine_p = engine;
    return UMX_OK;
}

umx_status
umi_ops_engines_add(umx_worker *worker, umi_engine **engine_p)
{
    umx_status status = create(worker, engine_p);

    if (status == UMX_OK) {
        umi_engine_add(*engine_p);
        umi_engine_hold(*engine_p);
    }
    return status;
}

umx_status
umi_ops_engines_renew(umx_worker *worker)
{
    umi_engine *old = worker->engine;
    umi_engine *engine;
    umx_status  status = create(worker, &engine);

    if (status == UMX_OK) {
        umi_engine_use(engine);
        umi_tag_move(worker, old);
        worker->stats->renewals++;
    }
    return status;
}
