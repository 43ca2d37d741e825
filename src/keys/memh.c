/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/memh.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "keys/key.h"
#include "keys/waiters.h"
#include "mem/cuda_memory.h"
#include "mem/memtype.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/membarrier.h"

/* ---- UCX's part ----------------------------------------------------------
 */

static umx_status
map_memory(umx_memh *memh)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .address     = memh->buf.data,
        .length      = memh->buf.len,
        .memory_type = umi_ucs_memtype(memh->context, memh->buf.memtype),
    };
    umx_status status;

    /* A registration reaches whole pages of a slab, and outlives a memory. */
    if (memh->buf.len == 0 || memh->block != NULL ||
        umi_must_stage(memh->context, &memh->buf)) {
        return UMX_OK;
    }
    status = umi_memory_enter(&memh->buf);
    if (status != UMX_OK) {
        return status;
    }
    memh->ucx = umi_context_take_ucx(memh->context);
    status    = (umx_status)ucp_mem_map(memh->ucx->handle, &params, &memh->ucp);
    umi_memory_leave(&memh->buf);
    if (status != UMX_OK) {
        umi_context_put_ucx(memh->ucx);
        memh->ucx = NULL;
    }
    return status;
}

static void
unmap_memory(umx_memh *memh)
{
    if (memh->ucx != NULL) {
        (void)ucp_mem_unmap(memh->ucx->handle, memh->ucp);
        umi_context_put_ucx(memh->ucx);
    }
}

/* ---- the key -------------------------------------------------------------
 */

static umx_status
encode_key(umx_memh *memh, umi_key *key)
{
    uint8_t data[UMI_KEY_MAX];

    memh->key_len = umi_key_encode(key, data);
    if (memh->key_len == 0) {
        return UMX_ERR_UNSUPPORTED; /* what UCX has packed is too long */
    }
    memh->key = malloc(memh->key_len);
    if (memh->key == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memcpy(memh->key, data, memh->key_len);
    return UMX_OK;
}

static umx_status
make_key(umx_memh *memh)
{
    umi_key    key  = {.context = memh->context->id,
                       .memory  = memh->id,
                       .address = (uintptr_t)memh->buf.data,
                       .length  = memh->buf.len};
    void      *rkey = NULL;
    size_t     len  = 0;
    umx_status status;

    if (memh->is_readonly) {
        key.flags |= UMI_KEY_READONLY;
    }
    if (memh->segment != NULL) {
        key.flags |= UMI_KEY_SEGMENT;
        key.segment = memh->segment_number;
    }
    if (memh->block != NULL) {
        key.flags |= UMI_KEY_SLAB;
        key.place = memh->block->place;
    }
    if (memh->ucp != NULL) {
        status = (umx_status)ucp_rkey_pack(memh->ucx->handle, memh->ucp, &rkey,
                                           &len);
        if (status != UMX_OK) {
            return status;
        }
    }
    key.rkey     = rkey;
    key.rkey_len = (uint16_t)(len < UINT16_MAX ? len : UINT16_MAX);
    status       = encode_key(memh, &key);
    if (rkey != NULL) {
        ucp_rkey_buffer_release(rkey);
    }
    return status;
}

/* ---- the context's list --------------------------------------------------
 */

/* 0 when out of memory, or of randomness. */
static uint64_t
add_to_context(umx_memh *memh)
{
    umx_context *context = memh->context;
    uint32_t     nonce;
    uint64_t     id;

    if (!umi_random_bytes(&nonce, sizeof(nonce))) {
        return 0;
    }
    pthread_mutex_lock(&context->memhs_lock);
    id = umi_slots_add(&context->memhs, memh, nonce);
    pthread_mutex_unlock(&context->memhs_lock);
    return id;
}

static void
remove_from_context(umx_memh *memh)
{
    umx_context *context = memh->context;

    pthread_mutex_lock(&context->memhs_lock);
    umi_slots_remove(&context->memhs, memh->id);
    memh->id = 0;
    pthread_mutex_unlock(&context->memhs_lock);
}

umx_memh *
umi_memh_find(umx_context *context, uint64_t id)
{
    umx_memh *memh;

    pthread_mutex_lock(&context->memhs_lock);
    memh = umi_slots_get(&context->memhs, id);
    if (memh != NULL) {
        umi_memh_hold(memh);
    }
    pthread_mutex_unlock(&context->memhs_lock);
    return memh;
}

static void
pin(umx_memh *memh)
{
    if (memh->block != NULL) {
        umi_slab_pin(memh->block->slab);
    } else {
        umi_pin_use(&memh->pin, memh->buf.data, memh->buf.len);
    }
}

/* Under the lock none that is found goes. */
void
umi_memh_pin(umx_context *context, const umx_buffer *buf)
{
    pthread_mutex_lock(&context->memhs_lock);
    for (uint32_t i = 0; i < context->memhs.size; i++) {
        umx_memh *memh = context->memhs.slots[i].value;

        if (memh != NULL && umi_memh_covers(memh, buf)) {
            pin(memh);
            break;
        }
    }
    pthread_mutex_unlock(&context->memhs_lock);
}

/* ---- life ----------------------------------------------------------------
 */

static umx_memh *
memh_new(umx_context *context)
{
    umx_memh *memh = calloc(1, sizeof(*memh));

    if (memh != NULL) {
        umi_shared_refs_init(&memh->refs);
        memh->context     = context;
        memh->buf.memtype = UMX_MEMTYPE_HOST;
        memh->waiters     = &memh->own_waiters;
    }
    return memh;
}

/* Where the data are in their segment. */
static size_t
data_offset(const umx_memh *memh)
{
    return (memh->block != NULL) ? memh->block->offset : memh->offset;
}

/* Register the memory, and make it known to the context. */
static umx_status
memh_open(umx_memh *memh)
{
    umx_status status = map_memory(memh);

    if (status != UMX_OK) {
        return status;
    }
    memh->id = add_to_context(memh);
    status   = (memh->id == 0) ? UMX_ERR_NO_MEMORY : make_key(memh);
    if (status != UMX_OK) {
        goto unmap;
    }
    if (memh->segment != NULL) {
        memh->waiters = &memh->segment->waiters;
        umi_segment_publish(memh->segment, memh->context->id, memh->id,
                            data_offset(memh), memh->buf.len);
    }
    memh->number = memh->id;
    umi_context_hold(memh->context);
    return UMX_OK;

unmap:
    if (memh->id != 0) {
        remove_from_context(memh);
    }
    unmap_memory(memh);
    return status;
}

/* Free memory of umx_memh_alloc(), umx_memh_alloc_private(),
 * umx_memh_alloc_cuda() or umx_heap_alloc(). */
static void
free_memory(umx_memh *memh)
{
    if (memh->is_of_driver) {
        if (memh->context->generation == umi_fork_generation()) {
            umi_cuda_free(memh->buf.memtype, memh->buf.data);
        }
    } else if (memh->block != NULL) {
        umi_block_put(memh->block);
    } else if (memh->segment != NULL) {
        umi_segment_unmap(memh->segment, 0);
    } else {
        (void)munmap((char *)memh->buf.data - memh->offset,
                     memh->buf.len + memh->slack + UMI_SEGMENT_HEADER);
    }
}

/* Place `len` bytes in a segment or a mapping, which begins with a page:
 * UMI_SEGMENT_HEADER bytes behind a multiple of a page and the slack. */
static void
place(umx_memh *memh, void *address, size_t len)
{
    size_t align = memh->slack + UMX_MEMH_PAGE;

    memh->offset   = UMI_SEGMENT_HEADER + (-(uintptr_t)address & (align - 1));
    memh->buf.data = (char *)address + memh->offset;
    memh->buf.len  = len;
}

/* Allocate memory that is mapped by this process alone. The memory begins in
 * the middle of a page, as in a segment (segment.h). */
static umx_status
allocate_private(umx_memh *memh, size_t len)
{
    size_t more = memh->slack + UMI_SEGMENT_HEADER;
    void  *address;

    if (len > SIZE_MAX - more) {
        return UMX_ERR_NO_MEMORY;
    }
    address = mmap(NULL, len + more, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return UMX_ERR_NO_MEMORY;
    }
    place(memh, address, len);
    return UMX_OK;
}

static void
warn_of_private_memory(void)
{
    umi_log(UMI_LOG_WARN, "the system has no shared memory segments (shmget): "
                          "no peer can map memory of this process");
}

/* Shared memory; where the system has none, private memory, which peers reach
 * by way of this process. */
static umx_status
allocate(umx_memh *memh, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    umx_status            status;

    if (len > SIZE_MAX - memh->slack) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_segment_create(len + memh->slack, &memh->segment,
                                &memh->segment_number);
    if (status == UMX_ERR_UNSUPPORTED) {
        pthread_once(&once, warn_of_private_memory);
        return allocate_private(memh, len);
    }
    if (status == UMX_OK) {
        place(memh, memh->segment, len);
    }
    return status;
}

/* The memory is there, or that failed with `status`. */
static umx_status
open_allocated(umx_memh *memh, umx_status status, umx_memh **memh_p)
{
    if (status != UMX_OK) {
        goto free_memh;
    }
    status = memh_open(memh);
    if (status != UMX_OK) {
        goto release_memory;
    }
    *memh_p = memh;
    return UMX_OK;

release_memory:
    free_memory(memh);
free_memh:
    free(memh->key);
    free(memh);
    return status;
}

static umx_status
alloc_shared(umx_context *context, size_t len, size_t align, bool is_readonly,
             umx_memh **memh_p)
{
    umx_memh  *memh;
    umx_status status;

    if (context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    memh = memh_new(context);
    if (memh == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memh->is_readonly = is_readonly;
    memh->slack       = align - UMX_MEMH_PAGE;
    status            = allocate(memh, len);
    if (status == UMX_OK && is_readonly && memh->segment != NULL) {
        status = umi_segment_protect(memh->segment_number);
        if (status != UMX_OK) {
            free_memory(memh);
        }
    }
    return open_allocated(memh, status, memh_p);
}

umx_status
umx_memh_alloc(umx_context *context, size_t len, umx_memh **memh_p)
{
    return alloc_shared(context, len, UMX_MEMH_PAGE, false, memh_p);
}

umx_status
umx_memh_alloc_aligned(umx_context *context, size_t len, size_t align,
                       umx_memh **memh_p)
{
    if (align < UMX_MEMH_PAGE || (align & (align - 1)) != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    return alloc_shared(context, len, align, false, memh_p);
}

umx_status
umx_memh_alloc_readonly(umx_context *context, size_t len, umx_memh **memh_p)
{
    return alloc_shared(context, len, UMX_MEMH_PAGE, true, memh_p);
}

umx_status
umx_memh_alloc_private(umx_context *context, size_t len, umx_memh **memh_p)
{
    umx_memh  *memh;
    umx_status status;

    if (context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    memh = memh_new(context);
    if (memh == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = allocate_private(memh, len);
    return open_allocated(memh, status, memh_p);
}

umx_status
umi_memh_open_block(umx_context *context, umi_block *block, size_t len,
                    umx_memh **memh_p)
{
    umx_memh *memh = memh_new(context);

    if (memh == NULL) {
        umi_block_put(block);
        return UMX_ERR_NO_MEMORY;
    }
    memh->block          = block;
    memh->segment        = umi_block_header(block);
    memh->segment_number = block->slab->number;
    memh->buf.data       = umi_block_data(block);
    memh->buf.len        = len;
    memset(memh->buf.data, 0, len);
    return open_allocated(memh, UMX_OK, memh_p);
}

umx_status
umx_memh_alloc_cuda(umx_context *context, umx_memtype memtype, int device,
                    size_t len, umx_memh **memh_p)
{
    umx_memh  *memh;
    umx_status status;

    if (context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    if (memtype == UMX_MEMTYPE_UNKNOWN || memtype > UMX_MEMTYPE_CUDA_MANAGED) {
        return UMX_ERR_INVALID_PARAM;
    }
    memh = memh_new(context);
    if (memh == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memh->is_of_driver = true;
    memh->buf.memtype  = memtype;
    memh->buf.len      = len;
    status             = umi_cuda_alloc(memtype, device, len > 0 ? len : 1,
                                        &memh->buf.data);
    return open_allocated(memh, status, memh_p);
}

umx_status
umx_memh_register(umx_context *context, const umx_buffer *buf,
                  const umx_memh_params *params, umx_memh **memh_p)
{
    uint64_t   fields = (params != NULL) ? params->field_mask : 0;
    umx_memh  *memh;
    umx_status status;

    if (context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    status = umi_check_contiguous(buf);
    if (status != UMX_OK) {
        return status;
    }
    memh = memh_new(context);
    if (memh == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memh->buf.data = buf->data;
    memh->buf.len  = buf->len;
    if (buf->memtype != UMX_MEMTYPE_UNKNOWN) {
        memh->buf.memtype = buf->memtype;
    }
    memh->is_readonly = (fields & UMX_MEMH_FIELD_FLAGS) &&
                        (params->flags & UMX_MEMH_FLAG_READONLY);
    status = memh_open(memh);
    if (status != UMX_OK) {
        free(memh->key);
        free(memh);
        return status;
    }
    if (fields & UMX_MEMH_FIELD_ON_FREE) {
        memh->on_free = params->on_free;
        memh->arg     = params->arg;
    }
    memh->is_lent = true;
    *memh_p       = memh;
    return UMX_OK;
}

umx_status
umx_memh_order_stores(umx_memh *memh)
{
    if (memh->segment == NULL) {
        return UMX_OK;
    }
    if (!umi_membarrier_is_possible() || !umi_membarrier_fence()) {
        return UMX_ERR_UNSUPPORTED;
    }
    atomic_store_explicit(&memh->is_ordered, true, memory_order_relaxed);
    atomic_store_explicit(&memh->segment->is_ordered, 1, memory_order_release);
    return UMX_OK;
}

bool
umx_memh_is_closed(const umx_memh *memh)
{
    return umi_memh_is_closed(memh);
}

bool
umx_memh_is_shared(const umx_memh *memh)
{
    return memh->segment != NULL && !umi_memh_is_closed(memh);
}

bool
umx_memh_is_mapped_elsewhere(const umx_memh *memh)
{
    return memh->segment != NULL && umi_segment_is_shared(memh->segment_number);
}

const umx_buffer *
umx_memh_buffer(const umx_memh *memh)
{
    return &memh->buf;
}

const void *
umx_memh_key(const umx_memh *memh, size_t *len_p)
{
    *len_p = memh->key_len;
    return memh->key;
}

void
umx_memh_close(umx_memh *memh)
{
    if (memh->context->generation != umi_fork_generation()) {
        return; /* the parent's, which goes on with it */
    }
    remove_from_context(memh);
    if (memh->segment != NULL) {
        umi_segment_close(memh->segment);
    }
    if (!atomic_exchange_explicit(&memh->is_closed, true,
                                  memory_order_acq_rel)) {
        umi_waiters_wake(memh->context, memh->number, NULL);
    }
}

void
umi_memh_ring(umx_memh *memh, const umx_worker *inside)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (umi_waiters_are_announced(
            atomic_load_explicit(memh->waiters, memory_order_seq_cst))) {
        umi_waiters_wake(memh->context, memh->number, inside);
    }
}

void
umx_memh_notify(umx_memh *memh)
{
    if (memh->context->generation == umi_fork_generation()) {
        umi_memh_ring(memh, NULL);
    }
}

void
umi_memh_put(umx_memh *memh)
{
    umx_context *context = memh->context;

    if (!umi_shared_refs_put(&memh->refs)) {
        return;
    }
    if (context->generation == umi_fork_generation()) {
        umi_pin_end(&memh->pin);
        unmap_memory(memh);
    }
    if (!memh->is_lent) {
        free_memory(memh);
    } else if (memh->on_free != NULL) {
        memh->on_free(memh->arg);
    }
    free(memh->key);
    free(memh);
    umx_context_release(context);
}

void
umx_memh_release(umx_memh *memh)
{
    umx_memh_close(memh);
    umi_memh_put(memh);
}
