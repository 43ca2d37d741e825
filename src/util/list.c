/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/list.h"

#ifndef NDEBUG
_Thread_local unsigned umi_list_walks;
#endif
