/* SPDX-License-Identifier: BSD-3-Clause */
/** @file umx.h  All of libumx. */
#ifndef UMX_UMX_H
#define UMX_UMX_H

#include <umx/address.h>
#include <umx/am.h>
#include <umx/buffer.h>
#include <umx/channel.h>
#include <umx/collective.h>
#include <umx/column.h>
#include <umx/comm.h>
#include <umx/context.h>
#include <umx/control.h>
#include <umx/describe.h>
#include <umx/endpoint.h>
#include <umx/frames.h>
#include <umx/heap.h>
#include <umx/joint.h>
#include <umx/layer.h>
#include <umx/listener.h>
#include <umx/loan.h>
#include <umx/memory.h>
#include <umx/messenger.h>
#include <umx/moe.h>
#include <umx/observe.h>
#include <umx/outputs.h>
#include <umx/partition.h>
#include <umx/progress.h>
#include <umx/proxy.h>
#include <umx/region.h>
#include <umx/request.h>
#include <umx/ring.h>
#include <umx/rma.h>
#include <umx/shmem.h>
#include <umx/shuffle.h>
#include <umx/status.h>
#include <umx/stream.h>
#include <umx/tag.h>
#include <umx/topology.h>
#include <umx/trace.h>
#include <umx/types.h>
#include <umx/version.h>
#include <umx/wait.h>
#include <umx/worker.h>

#endif
