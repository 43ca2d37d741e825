/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* follow.h: messages whose bytes follow behind their header, in UCX's stream.
 *
 * UCX gathers an active message that is longer than one of its segments in
 * memory of its own, and the handler copies it from there. UCX's stream between
 * two endpoints writes into the buffer of a receive that is posted. So the
 * header of such a message goes alone, and the bytes behind it:
 *
 *   UMI_AM_FOLLOWED  length u64 | the header of the data message
 *   UCX's stream     `length` bytes
 *
 * The header brings UCX's endpoint whose stream has the bytes. The receiver posts the receive for
 * them before it handles anything else:
 *
 *   a receive of the channel matches   into its buffer
 *   none does                          into memory of the full length, within
 *                                      the credit of the sender
 *   the message is refused             nowhere
 *
 * So each header takes its own bytes off the stream, which connections between
 * the same workers share, and the stream holds no others. Where that is
 * impossible the link ends. Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_FOLLOW_H
#define UMI_FOLLOW_H

#include "ops/am.h"

/* The shortest message that is sent so. Up to 8 KiB a message is one segment of
 * UCX's. Above that the copy which is saved has to pay for the second
 * operation: 12 KiB takes a ninth less where the receive is posted, and as much
 * more where it comes later or 16 messages are in flight; 16 KiB a quarter
 * less, and a twentieth more where the receive comes later. */
enum {
    UMI_FOLLOW_MIN = 16 * 1024
};

/* Listen for such messages, after the handler of data messages has been set. */
umx_status umi_follow_listen(umx_worker *worker);

/* True if the bytes of `req` may follow: moving them never fails. */
bool umi_follow_may_move(const umx_request *req);

/* Send `req->buf` as umi_am_send() does; the header is copied. */
umx_status umi_follow_send(umx_request *req, const void *header,
                           size_t header_len);

/* How such bytes are taken. Nobody gets those that are not received before the
 * handler returns. */
extern const umi_way umi_way_follow;

#endif
