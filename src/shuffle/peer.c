/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c: messages to and from another rank.
 *
 * While a rank has not read what it was sent, records gather in the next
 * message; so few messages carry many of them, and a rank that has not made its
 * shuffler yet is sent little. */
#include <stdlib.h>
#include <string.h>

#include "shuffle/shuffle.h"
#include "util/count.h"

enum {
    FLAG_RECORDS = 1,
    MAX_KEYS     = 1 << 20
};

/* ---- sending -------------------------------------------------------------
 */

static void
drop_message(umi_shuffle_peer *peer, umi_shuffle_message *message)
{
    if (peer->spare == NULL) {
        peer->spare = message;
    } else {
        free(message);
    }
}

static umi_shuffle_message *
new_message(umi_shuffle_peer *peer)
{
    umi_shuffle_message *message = peer->spare;

    peer->spare = NULL;
    if (message == NULL) {
        message = malloc(sizeof(*message));
    }
    if (message != NULL) {
        umi_node_init(&message->node);
        message->peer = peer;
        message->len  = UMI_SHUFFLE_HEADER_SIZE;
    }
    return message;
}

static void
on_sent(umx_request *req, umx_status status, void *arg)
{
    umi_shuffle_message *message = arg;
    umi_shuffle_peer    *peer    = message->peer;
    umx_shuffler        *sh      = peer->sh;

    (void)req;
    (void)status; /* its failure revokes the communicator */
    UMI_DECREMENT(sh->num_sending);
    drop_message(peer, message);
    umi_shuffle_check_end(sh);
    umi_shuffle_put(sh);
}

/* Send a message, which is freed when the channel has it. */
static void
send(umi_shuffle_peer *peer, umi_shuffle_message *message, unsigned flags)
{
    umx_shuffler *sh     = peer->sh;
    umx_op_params params = umx_layer_op_params(on_sent, message);
    umx_buffer    buf    = umx_host_buffer(message->data, message->len);
    umx_request  *req;
    umi_writer    w;
    umx_status    status;

    umi_writer_init(&w, message->data, UMI_SHUFFLE_HEADER_SIZE);
    umi_write_u16(&w, (uint16_t)peer->num_owed);
    umi_write_u16(&w, (uint16_t)flags);
    peer->num_owed = 0;
    status = umx_comm_isend(sh->comm, peer->rank, 0, &buf, &params, &req);
    if (status == UMX_INPROGRESS) {
        sh->num_sending++;
        umi_shuffle_hold(sh);
        return;
    }
    drop_message(peer, message);
    if (status < 0 && status != UMX_ERR_RANK_FAILED) {
        umi_shuffle_break(sh, "a message could not be sent: %s",
                          umx_status_string(status));
    }
}

void
umi_shuffle_peer_flush(umi_shuffle_peer *peer)
{
    umx_shuffler *sh = peer->sh;

    while (!umi_list_is_empty(&peer->unsent) && sh->status == UMX_OK &&
           !peer->is_gone) {
        umi_shuffle_message *message = umi_container_of(
            peer->unsent.next, umi_shuffle_message, node);

        if (peer->num_unread >= UMI_SHUFFLE_WINDOW ||
            (peer->num_unread != 0 && message->node.next == &peer->unsent)) {
            break;
        }
        umi_node_remove(&message->node);
        peer->num_unread++;
        send(peer, message, FLAG_RECORDS);
    }
    if (peer->num_owed != 0 && sh->status == UMX_OK && !peer->is_gone) {
        umi_shuffle_message *message = new_message(peer);

        if (message == NULL) {
            umi_shuffle_break(sh, "no memory for a message");
            return;
        }
        send(peer, message, 0);
    }
}

void
umi_shuffle_flush(umx_shuffler *sh)
{
    for (int i = 0; i < sh->size; i++) {
        umi_shuffle_peer_flush(&sh->peers[i]);
    }
}

umx_status
umi_shuffle_peer_tell(umi_shuffle_peer *peer, const umi_shuffle_record *records,
                      size_t count)
{
    umi_shuffle_message *message = NULL;
    size_t               size    = 0;
    umi_writer           w;

    for (size_t i = 0; i < count; i++) {
        size += umi_shuffle_record_size(&records[i]);
    }
    if (!umi_list_is_empty(&peer->unsent)) {
        message = umi_container_of(peer->unsent.prev, umi_shuffle_message,
                                   node);
    }
    if (message == NULL || size > sizeof(message->data) - message->len) {
        if (size > sizeof(message->data) - UMI_SHUFFLE_HEADER_SIZE) {
            return UMX_ERR_OUT_OF_RANGE;
        }
        message = new_message(peer);
        if (message == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        umi_list_append(&peer->unsent, &message->node);
    }
    umi_writer_init(&w, message->data + message->len,
                    sizeof(message->data) - message->len);
    for (size_t i = 0; i < count; i++) {
        umi_shuffle_record_encode(&records[i], &w);
    }
    message->len += size;
    return UMX_OK;
}

void
umi_shuffle_peer_say(umi_shuffle_peer *peer, umi_shuffle_record_kind kind,
                     uint64_t number)
{
    umi_shuffle_record record = {
        .kind = kind, .id = number, .key = (uint32_t)number};

    if (peer->sh->status == UMX_OK && peer->sh->worker != NULL &&
        !peer->is_gone && umi_shuffle_peer_tell(peer, &record, 1) != UMX_OK) {
        umi_shuffle_break(peer->sh, "no memory for a message");
    }
}

/* ---- receiving -----------------------------------------------------------
 */

static bool
on_key(umi_shuffle_peer *peer, const umi_shuffle_record *record)
{
    umx_shuffler    *sh = peer->sh;
    umi_shuffle_key *key, **keys;
    umx_ep          *ep;
    uint32_t         size = peer->num_keys;

    if (record->key >= MAX_KEYS) {
        return false;
    }
    if (record->key >= size) {
        while (size <= record->key) {
            size = (size == 0) ? 8 : 2 * size;
        }
        keys = realloc(peer->keys, size * sizeof(void *));
        if (keys == NULL) {
            return false;
        }
        memset(keys + peer->num_keys, 0,
               (size - peer->num_keys) * sizeof(void *));
        peer->keys     = keys;
        peer->num_keys = size;
    }
    key = calloc(1, sizeof(*key));
    if (key == NULL || peer->keys[record->key] != NULL ||
        umx_comm_get_ep(sh->comm, peer->rank, &ep) != UMX_OK ||
        umx_rkey_open(ep, record->data, (size_t)record->len, &key->rkey) !=
            UMX_OK) {
        free(key);
        return false;
    }
    umi_refs_init(&key->refs);
    peer->keys[record->key] = key;
    return true;
}

static umi_shuffle_key *
find_key(const umi_shuffle_peer *peer, uint32_t number)
{
    return (number < peer->num_keys) ? peer->keys[number] : NULL;
}

static bool
has_finished(const umi_shuffle_peer *peer, uint32_t partition)
{
    return (peer->finished[partition / 8] >> (partition % 8) & 1) != 0;
}

/* May the rank still insert into the partition? */
static bool
is_open(const umi_shuffle_peer *peer, uint32_t partition)
{
    const umx_shuffler *sh = peer->sh;

    return partition < sh->num_partitions &&
           sh->owners[partition] == sh->rank && !has_finished(peer, partition);
}

static bool
on_chunk(umi_shuffle_peer *peer, const umi_shuffle_record *record)
{
    umx_shuffler      *sh  = peer->sh;
    umi_shuffle_key   *key = find_key(peer, record->key);
    umx_shuffle_chunk *chunk;
    char              *data;

    if (key == NULL || !is_open(peer, record->partition) || record->len == 0 ||
        record->offset > umx_rkey_length(key->rkey) ||
        record->len > umx_rkey_length(key->rkey) - record->offset) {
        return false;
    }
    chunk = umi_shuffle_chunk_new(sh, record->partition, peer->rank, 0);
    if (chunk == NULL) {
        return false;
    }
    chunk->peer   = peer;
    chunk->id     = record->id;
    chunk->len    = (size_t)record->len;
    chunk->key    = key;
    chunk->offset = record->offset;
    umi_refs_get(&key->refs);
    data = umx_rkey_pointer(key->rkey);
    if (data == NULL) {
        umi_list_append(&peer->to_fetch, &chunk->node);
        return true;
    }
    chunk->place = UMX_CHUNK_MAPPED;
    chunk->data  = data + record->offset;
    umi_shuffle_peer_say(peer, UMI_SHUFFLE_RECORD_TAKEN, record->id);
    if (sh->status == UMX_OK) { /* or the chunk has been dropped */
        umi_shuffle_chunk_landed(chunk);
    }
    return true;
}

static bool
on_inline(umi_shuffle_peer *peer, const umi_shuffle_record *record)
{
    umx_shuffle_chunk *chunk;

    if (!is_open(peer, record->partition)) {
        return false;
    }
    chunk = umi_shuffle_chunk_copy(peer->sh, record->partition, peer->rank,
                                   record->data, (size_t)record->len);
    if (chunk == NULL) {
        return false;
    }
    umi_shuffle_chunk_landed(chunk);
    return true;
}

static void
finish(umi_shuffle_peer *peer, uint32_t partition)
{
    peer->finished[partition / 8] |= (uint8_t)(1u << (partition % 8));
    umi_shuffle_partition_finish(peer->sh, partition);
}

static bool
on_finished(umi_shuffle_peer *peer, uint32_t partition)
{
    if (partition != UMX_PARTITION_ALL) {
        if (!is_open(peer, partition)) {
            return false;
        }
        finish(peer, partition);
        return true;
    }
    for (uint32_t i = 0; i < peer->sh->num_partitions; i++) {
        if (is_open(peer, i)) {
            finish(peer, i);
        }
    }
    return true;
}

static bool
on_forget(umi_shuffle_peer *peer, uint32_t number)
{
    umi_shuffle_key *key = find_key(peer, number);

    if (key == NULL) {
        return false;
    }
    peer->keys[number] = NULL;
    umi_shuffle_key_put(key);
    return true;
}

static bool
on_record(umi_shuffle_peer *peer, const umi_shuffle_record *record)
{
    umi_shuffle_insert *insert;

    switch (record->kind) {
    case UMI_SHUFFLE_RECORD_KEY:
        return on_key(peer, record);
    case UMI_SHUFFLE_RECORD_CHUNK:
        return on_chunk(peer, record);
    case UMI_SHUFFLE_RECORD_INLINE:
        return on_inline(peer, record);
    case UMI_SHUFFLE_RECORD_FINISHED:
        return on_finished(peer, record->partition);
    case UMI_SHUFFLE_RECORD_FORGET:
        return on_forget(peer, record->key);
    default:
        insert = umi_slots_get(&peer->inserts, record->id);
        if (insert == NULL) {
            return false;
        }
        if (record->kind == UMI_SHUFFLE_RECORD_TAKEN) {
            umi_shuffle_insert_taken(insert);
        } else {
            umi_shuffle_insert_end(insert, UMX_OK);
        }
        return true;
    }
}

/* Act on a message of `len` bytes. False: the message is none of a shuffle. */
static bool
on_message(umi_shuffle_peer *peer, size_t len)
{
    umi_reader         r;
    umi_shuffle_record record;
    unsigned           acks, flags;

    umi_reader_init(&r, peer->rx, len);
    acks  = umi_read_u16(&r);
    flags = umi_read_u16(&r);
    if (r.is_bad || acks > peer->num_unread) {
        return false;
    }
    peer->num_unread -= acks;
    peer->num_owed += ((flags & FLAG_RECORDS) != 0) ? 1 : 0;
    while (r.pos != r.end) {
        if (!umi_shuffle_record_decode(&record, &r) ||
            !on_record(peer, &record)) {
            return false;
        }
        if (peer->sh->status != UMX_OK) {
            return true;
        }
    }
    return true;
}

bool
umi_shuffle_has_finished_all(const umi_shuffle_peer *peer)
{
    for (uint32_t i = 0; i < peer->sh->num_partitions; i++) {
        if (is_open(peer, i)) {
            return false;
        }
    }
    return true;
}

/* The receive from a rank has failed: because the shuffle has ended, the rank
 * has left, or this message could not be received. */
static void
on_receive_failed(umi_shuffle_peer *peer, umx_status status)
{
    umx_shuffler    *sh = peer->sh;
    umx_comm_failure failure;

    if (umx_comm_get_failure(sh->comm, &failure) || sh->worker == NULL) {
        umi_shuffle_fail(sh, UMX_ERR_RANK_FAILED);
    } else if (status == UMX_ERR_RANK_FAILED &&
               !umi_shuffle_has_finished_all(peer)) {
        umi_shuffle_break(sh, "rank %d has left before the shuffle was over",
                          peer->rank);
    } else if (status == UMX_ERR_RANK_FAILED) {
        peer->is_gone = true; /* it has all that it needs of this rank */
        umi_shuffle_inserts_end(sh, peer, UMX_ERR_CLOSED);
        umi_shuffle_check_end(sh);
    } else {
        umi_shuffle_break(sh, "rank %d: a message could not be received: %s",
                          peer->rank, umx_status_string(status));
    }
}

static void on_received(umx_request *req, umx_status status, void *arg);

static void
take_message(umi_shuffle_peer *peer, umx_status status, size_t len)
{
    umx_shuffler *sh = peer->sh;

    if (sh->is_left) {
        return;
    }
    if (status != UMX_OK) {
        on_receive_failed(peer, status);
    } else if (sh->status == UMX_OK && !on_message(peer, len)) {
        umi_shuffle_break(sh,
                          "rank %d has sent what is no message of a "
                          "shuffle, or there is no memory for it",
                          peer->rank);
    }
}

umx_status
umi_shuffle_peer_listen(umi_shuffle_peer *peer)
{
    umx_shuffler   *sh     = peer->sh;
    umx_op_params   params = umx_layer_op_params(on_received, peer);
    umx_buffer      buf = umx_host_buffer(peer->rx, UMI_SHUFFLE_MESSAGE_SIZE);
    umx_comm_status got;
    umx_status      status;

    do {
        status = umx_comm_irecv(sh->comm, peer->rank, 0, 0, &buf, &params,
                                &peer->recv, &got);
        if (status == UMX_INPROGRESS) {
            umi_shuffle_hold(sh);
            return UMX_OK;
        }
        peer->recv = NULL;
        if (status == UMX_ERR_NO_MEMORY) {
            return status;
        }
        take_message(peer, status, got.length);
    } while (status == UMX_OK && sh->status == UMX_OK && !sh->is_left);
    return UMX_OK;
}

static void
on_received(umx_request *req, umx_status status, void *arg)
{
    umi_shuffle_peer *peer = arg;
    umx_shuffler     *sh   = peer->sh;

    peer->recv = NULL;
    take_message(peer, status, umx_comm_result(req)->length);
    if (status == UMX_OK && sh->status == UMX_OK && !sh->is_left &&
        umi_shuffle_peer_listen(peer) != UMX_OK) {
        umi_shuffle_break(sh, "no memory for a receive");
    }
    if (sh->status == UMX_OK && !sh->is_left) {
        umi_shuffle_fetch_all(sh);
        umi_shuffle_flush(sh);
        umi_shuffle_check_end(sh);
    }
    umi_shuffle_put(sh);
}

/* ---- life ----------------------------------------------------------------
 */

umx_status
umi_shuffle_peer_init(umi_shuffle_peer *peer, umx_shuffler *sh, int rank)
{
    peer->sh   = sh;
    peer->rank = rank;
    umi_list_init(&peer->unsent);
    umi_list_init(&peer->to_fetch);
    umi_slots_init(&peer->inserts);
    peer->rx       = malloc(UMI_SHUFFLE_MESSAGE_SIZE);
    peer->finished = calloc(1, (size_t)sh->num_partitions / 8 + 1);
    return (peer->rx == NULL || peer->finished == NULL) ? UMX_ERR_NO_MEMORY :
                                                          UMX_OK;
}

void
umi_shuffle_peer_drop_unsent(umi_shuffle_peer *peer)
{
    umi_node *node;

    while ((node = umi_list_pop(&peer->unsent)) != NULL) {
        free(umi_container_of(node, umi_shuffle_message, node));
    }
}

void
umi_shuffle_peer_fini(umi_shuffle_peer *peer)
{
    if (peer->sh == NULL) {
        return;
    }
    umi_shuffle_peer_drop_unsent(peer);
    for (uint32_t i = 0; i < peer->num_keys; i++) {
        if (peer->keys[i] != NULL) {
            umi_shuffle_key_put(peer->keys[i]);
        }
    }
    umi_slots_fini(&peer->inserts);
    free(peer->keys);
    free(peer->sent_keys);
    free(peer->spare);
    free(peer->rx);
    free(peer->finished);
}
