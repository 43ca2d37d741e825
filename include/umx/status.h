/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file status.h  One status code for every call of libumx.
 *
 * 0 is done, positive is "in progress", negative is a failure. Failures that
 * UCX reports keep UCX's numbers (-1 to -99), so a status read in a log means
 * the same here and in UCX's documentation; those that only libumx can decide
 * start at -200.
 */
#ifndef UMX_STATUS_H
#define UMX_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define UMX_API __attribute__((visibility("default")))
#define UMX_MUST_CHECK __attribute__((warn_unused_result))
#else
#define UMX_API
#define UMX_MUST_CHECK
#endif

/* name, value, text: the one table behind umx_status_string() and behind
 * Python's exceptions. */
#define UMX_STATUS_TABLE(X)                                                  \
    X(UMX_OK, 0, "success")                                                  \
    X(UMX_INPROGRESS, 1, "operation in progress")                            \
    X(UMX_ERR_NO_MESSAGE, -1, "no pending message")                          \
    X(UMX_ERR_NO_RESOURCE, -2, "no resources are available")                 \
    X(UMX_ERR_IO_ERROR, -3, "input/output error")                            \
    X(UMX_ERR_NO_MEMORY, -4, "out of memory")                                \
    X(UMX_ERR_INVALID_PARAM, -5, "invalid parameter")                        \
    X(UMX_ERR_UNREACHABLE, -6, "destination is unreachable")                 \
    X(UMX_ERR_INVALID_ADDR, -7, "address not valid")                         \
    X(UMX_ERR_NOT_IMPLEMENTED, -8, "function not implemented")               \
    X(UMX_ERR_MESSAGE_TRUNCATED, -9, "message truncated")                    \
    X(UMX_ERR_NO_PROGRESS, -10, "no progress")                               \
    X(UMX_ERR_BUFFER_TOO_SMALL, -11, "provided buffer is too small")         \
    X(UMX_ERR_NO_ELEM, -12, "no such element")                               \
    X(UMX_ERR_NO_DEVICE, -14, "no such device")                              \
    X(UMX_ERR_BUSY, -15, "device is busy")                                   \
    X(UMX_ERR_CANCELED, -16, "request canceled")                             \
    X(UMX_ERR_SHMEM_SEGMENT, -17, "shared memory error")                     \
    X(UMX_ERR_ALREADY_EXISTS, -18, "element already exists")                 \
    X(UMX_ERR_OUT_OF_RANGE, -19, "index out of range")                       \
    X(UMX_ERR_TIMED_OUT, -20, "operation timed out")                         \
    X(UMX_ERR_EXCEEDS_LIMIT, -21, "user-defined limit was reached")          \
    X(UMX_ERR_UNSUPPORTED, -22, "unsupported operation")                     \
    X(UMX_ERR_REJECTED, -23, "operation rejected by remote peer")            \
    X(UMX_ERR_NOT_CONNECTED, -24, "connection refused, or not connected yet") \
    X(UMX_ERR_CONNECTION_RESET, -25, "connection reset by remote peer")      \
    X(UMX_ERR_ENDPOINT_TIMEOUT, -80, "endpoint timeout")                     \
    X(UMX_ERR_CLOSED, -200, "endpoint closed")                               \
    X(UMX_ERR_PEER_CLOSED, -201, "endpoint closed by the peer")              \
    X(UMX_ERR_WRONG_THREAD, -202,                                            \
      "called from a thread that is not the owner")                          \
    X(UMX_ERR_PROTOCOL, -203, "peer sent a malformed message")               \
    X(UMX_ERR_VERSION, -204, "peer speaks an incompatible protocol version") \
    X(UMX_ERR_AUTH, -205, "peer failed authentication")                      \
    X(UMX_ERR_LENGTH_MISMATCH, -206, "message is shorter than the buffer")   \
    X(UMX_ERR_UNKNOWN_OPTION, -207, "unknown configuration option")          \
    X(UMX_ERR_FORKED, -208, "object belongs to the parent process")          \
    X(UMX_ERR_INVALID_KEY, -209, "not a key of the peer's memory")           \
    X(UMX_ERR_STALE_KEY, -210, "the memory of the key is closed")            \
    X(UMX_ERR_READONLY, -211, "the memory is read-only")                     \
    X(UMX_ERR_WORKER_GONE, -212,                                             \
      "Destination is unreachable, or Endpoint timeout: no such worker")     \
    X(UMX_ERR_CHANNEL_LIMIT, -213, "the peer accepts no more channels")      \
    X(UMX_ERR_SEG_SIZE, -214,                                                \
      "a segment of UCX's shared memory must be less than 64k "              \
      "(UCX_POSIX_SEG_SIZE, UCX_SYSV_SEG_SIZE, UCX_XPMEM_SEG_SIZE, "         \
      "UCX_MM_SEG_SIZE): UCX counts its bytes in 16 bits, and damages "      \
      "messages")                                                            \
    X(UMX_ERR_RANK_FAILED, -215, "a rank of the communicator has failed")    \
    X(UMX_ERR_SEGMENT_LIMIT, -216,                                           \
      "the system's limit on shared memory segments is reached")             \
    X(UMX_ERR_WITHDRAWN, -217, "the sender has cancelled the message")       \
    X(UMX_ERR_DESCRIPTOR_LIMIT, -218,                                        \
      "too few file descriptors are left for UCX: raise the limit of open "  \
      "files (ulimit -n)")                                                   \
    X(UMX_ERR_PORT_LIMIT, -219,                                              \
      "no port of UCX_TCP_PORT_RANGE is free: every worker of a host needs " \
      "one, those of clients, too")                                          \
    X(UMX_ERR_THREAD_LIMIT, -220,                                            \
      "the system lets this process start no thread: raise the limit of "    \
      "processes (ulimit -u) or of the control group (pids.max)")              \
    X(UMX_ERR_DEVICE_FAILED, -221,                                           \
      "the CUDA device has failed for this process, perhaps by a kernel of "  \
      "the program")

typedef enum umx_status {
#define UMX_STATUS_ENUM(name, value, text) name = (value),
    UMX_STATUS_TABLE(UMX_STATUS_ENUM)
#undef UMX_STATUS_ENUM
} umx_status;

/** A static string for `status`; "unknown status" for a value not above. */
UMX_API const char *umx_status_string(umx_status status);

/**
 * Give the system's error number behind a status, and forget it.
 *
 * A call that fails because the system refused something gives a status that
 * tells what the program can do about it. The number tells the rest: it is the
 * last one that a call of libumx in this thread met, or 0. To know that it is
 * of a certain call, take it before that call, too.
 *
 * Thread: any; each has its own.
 */
UMX_API int umx_take_errno(void);

/** What umx_take_errno() gives next. Thread: any; its own. */
UMX_API void umx_set_errno(int error);

#ifdef __cplusplus
}
#endif
#endif
