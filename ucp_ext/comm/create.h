/* SPDX-License-Identifier: BSD-3-Clause */
/* create.h: how a communicator is made. */
#ifndef UCP_EXT_COMM_CREATE_H
#define UCP_EXT_COMM_CREATE_H

#include "comm/request.h"

/* A method of Communicator. */
COMM_METHOD(create);

#endif
