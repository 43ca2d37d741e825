/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/status.h"

#include <errno.h>
#include <ucs/type/status.h>

/* A UCX status is cast, never translated. */
_Static_assert((int)UMX_OK == UCS_OK, "status");
_Static_assert((int)UMX_INPROGRESS == UCS_INPROGRESS, "status");
_Static_assert((int)UMX_ERR_NO_MEMORY == UCS_ERR_NO_MEMORY, "status");
_Static_assert((int)UMX_ERR_INVALID_PARAM == UCS_ERR_INVALID_PARAM, "status");
_Static_assert((int)UMX_ERR_UNREACHABLE == UCS_ERR_UNREACHABLE, "status");
_Static_assert((int)UMX_ERR_MESSAGE_TRUNCATED == UCS_ERR_MESSAGE_TRUNCATED,
               "status");
_Static_assert((int)UMX_ERR_BUSY == UCS_ERR_BUSY, "status");
_Static_assert((int)UMX_ERR_CANCELED == UCS_ERR_CANCELED, "status");
_Static_assert((int)UMX_ERR_TIMED_OUT == UCS_ERR_TIMED_OUT, "status");
_Static_assert((int)UMX_ERR_REJECTED == UCS_ERR_REJECTED, "status");
_Static_assert((int)UMX_ERR_NOT_CONNECTED == UCS_ERR_NOT_CONNECTED, "status");
_Static_assert((int)UMX_ERR_CONNECTION_RESET == UCS_ERR_CONNECTION_RESET,
               "status");
_Static_assert((int)UMX_ERR_ENDPOINT_TIMEOUT == UCS_ERR_ENDPOINT_TIMEOUT,
               "status");

const char *
umx_status_string(umx_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case name:                         \
        return text;
        UMX_STATUS_TABLE(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

/* The thread's last one that became a status. */
static _Thread_local int last_errno;

umx_status
umi_status_from_errno(int error)
{
    last_errno = error;
    switch (error) {
    case ECONNREFUSED:
        return UMX_ERR_NOT_CONNECTED;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EAFNOSUPPORT:
        return UMX_ERR_UNREACHABLE;
    case ETIMEDOUT:
        return UMX_ERR_TIMED_OUT;
    case ECONNRESET:
    case EPIPE:
        return UMX_ERR_CONNECTION_RESET;
    case EADDRINUSE:
        return UMX_ERR_BUSY;
    case EADDRNOTAVAIL:
        return UMX_ERR_INVALID_ADDR;
    case ENOMEM:
    case ENOBUFS:
        return UMX_ERR_NO_MEMORY;
    default:
        return UMX_ERR_IO_ERROR;
    }
}

void
umx_set_errno(int error)
{
    last_errno = error;
}

int
umx_take_errno(void)
{
    int error = last_errno;

    last_errno = 0;
    return error;
}
