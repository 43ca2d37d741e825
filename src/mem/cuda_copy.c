/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/cuda_copy.h"

#include <pthread.h>
#include <string.h>

#include "mem/cuda.h"
#include "mem/cuda_driver.h"
#include "mem/cuda_kernel.h"

enum {
    MAX_IDLE  = 64, /* events of a device that are kept */
    MAX_TRIES = 3
};

/* What copies of one device need; it is its primary context's. */
typedef struct device_state {
    cu_stream streams[UMI_CUDA_NUM_DIRECTIONS];
    cu_event  idle[MAX_IDLE];
    unsigned  num_idle;
    unsigned  life; /* of the context that they are of */
} device_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_state    devices[MAX_DEVICES];

static const char *const copy_names[] = {
    [UMI_CUDA_IN]     = "cuMemcpyHtoDAsync",
    [UMI_CUDA_OUT]    = "cuMemcpyDtoHAsync",
    [UMI_CUDA_ACROSS] = "cuMemcpyAsync",
};

/* ---- streams and events --------------------------------------------------
 */

/* Give the state of a device, of the context that it has now; locked. */
static device_state *
state_of(int device)
{
    device_state *state = &devices[device];
    unsigned      life  = umi_cuda_life(device);

    if (state->life != life) {
        *state = (device_state){.life = life};
    }
    return state;
}

umx_status
umi_cuda_stream(int device, umi_cuda_direction direction, void **stream_p)
{
    cu_result  result = CU_OK;
    cu_stream *stream;

    pthread_mutex_lock(&lock);
    stream = &state_of(device)->streams[direction];
    if (*stream == NULL) {
        result = umi_cuda.stream_create(stream, CU_NON_BLOCKING, CU_FIRST);
    }
    *stream_p = *stream;
    pthread_mutex_unlock(&lock);
    return umi_cuda_check(result, device, "cuStreamCreateWithPriority");
}

static umx_status
take_event(int device, cu_event *event_p)
{
    device_state *state;

    *event_p = NULL;
    pthread_mutex_lock(&lock);
    state = state_of(device);
    if (state->num_idle != 0) {
        *event_p = state->idle[--state->num_idle];
    }
    pthread_mutex_unlock(&lock);
    return (*event_p != NULL) ?
               UMX_OK :
               umi_cuda_check(umi_cuda.event_create(event_p, CU_NO_TIMING),
                              device, "cuEventCreate");
}

/* Give an event back whose copy is done. What is one too many goes. */
static void
put_event(int device, cu_event event)
{
    device_state *state;
    bool          is_kept;

    pthread_mutex_lock(&lock);
    state   = state_of(device);
    is_kept = state->num_idle < MAX_IDLE;
    if (is_kept) {
        state->idle[state->num_idle++] = event;
    }
    pthread_mutex_unlock(&lock);
    if (!is_kept) {
        (void)umi_cuda.event_destroy(event);
    }
}

/* ---- one copy ------------------------------------------------------------
 */

/* Queue a copy; the context of `device` has been entered. */
static umx_status
queue(int device, umi_cuda_direction direction, void *dst, const void *src,
      size_t len, cu_stream stream)
{
    cu_pointer to = (uintptr_t)dst, from = (uintptr_t)src;
    cu_result  result;

    switch (direction) {
    case UMI_CUDA_IN:
        result = umi_cuda.copy_htod(to, src, len, stream);
        break;
    case UMI_CUDA_OUT:
        result = umi_cuda.copy_dtoh(dst, from, len, stream);
        break;
    default:
        result    = umi_cuda.copy_across(to, from, len, stream);
        direction = UMI_CUDA_ACROSS;
        break;
    }
    return umi_cuda_check(result, device, copy_names[direction]);
}

/* Queue all of them. Few memories are moved one by one, and those of the host
 * always: a kernel may not reach them. Where it cannot be launched, all are
 * copied, also what it moves. */
static umx_status
queue_all(int device, umi_cuda_direction direction, const umi_cuda_move *moves,
          size_t count, cu_stream stream)
{
    umx_status status = UMX_OK;

    if (direction == UMI_CUDA_ACROSS && umi_cuda_kernel_is_for(count) &&
        umi_cuda_kernel_is_ready(device)) {
        status = umi_cuda_kernel_queue(device, moves, count, stream);
        if (status == UMX_OK || status == UMX_ERR_DEVICE_FAILED) {
            return status;
        }
        status = UMX_OK;
    }
    for (size_t i = 0; i < count && status == UMX_OK; i++) {
        status = queue(device, direction, moves[i].dst, moves[i].src,
                       moves[i].len, stream);
    }
    return status;
}

umx_status
umi_cuda_copy_begin(int device, umi_cuda_direction direction,
                    const umi_cuda_move *moves, size_t count,
                    umi_cuda_copy *copy)
{
    void      *stream;
    cu_event   event  = NULL;
    umx_status status = umi_cuda_enter_device(device);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_cuda_stream(device, direction, &stream);
    if (status == UMX_OK) {
        status = take_event(device, &event);
    }
    if (status == UMX_OK) {
        status = queue_all(device, direction, moves, count, stream);
        if (status == UMX_OK) {
            status = umi_cuda_check(umi_cuda.event_record(event, stream),
                                    device, "cuEventRecord");
        }
        if (status != UMX_OK) { /* nobody would know when it is done */
            (void)umi_cuda.stream_wait(stream);
            (void)umi_cuda.event_destroy(event);
        }
    }
    umi_cuda_leave();
    *copy = (umi_cuda_copy){event, device, direction};
    return status;
}

/* Wait for a copy whose event cannot be asked about: an error that does not
 * last says nothing about it. */
static void
make_sure(const umi_cuda_copy *copy)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        bool      is_inside = umi_cuda_enter_device(copy->device) == UMX_OK;
        cu_result result    = umi_cuda.event_wait(copy->event);

        if (is_inside) {
            umi_cuda_leave();
        }
        if (result == CU_OK) {
            break;
        }
    }
    (void)umi_cuda.event_destroy(copy->event);
}

void
umi_cuda_after_drop(const umi_cuda_copy *copy)
{
    if (umi_cuda_enter_device(copy->device) == UMX_OK) {
        (void)umi_cuda.event_destroy(copy->event);
        umi_cuda_leave();
    }
}

/* End a copy, with this status of what was asked. The event of a device that
 * has failed is nobody's, and what a program has queued may never end. */
static umx_status
end(const umi_cuda_copy *copy, umx_status status)
{
    if (status == UMX_OK) {
        put_event(copy->device, copy->event);
    } else if (copy->direction == UMI_CUDA_AFTER) {
        umi_cuda_after_drop(copy);
    } else if (status != UMX_ERR_DEVICE_FAILED) {
        make_sure(copy);
    }
    return status;
}

umx_status
umi_cuda_copy_test(umi_cuda_copy *copy)
{
    cu_result  result;
    umx_status status = umi_cuda_enter_device(copy->device);

    if (status == UMX_OK) {
        result = umi_cuda.event_query(copy->event);
        if (result != CU_NOT_READY) {
            status = umi_cuda_check(result, copy->device, "cuEventQuery");
        }
        umi_cuda_leave();
        if (result == CU_NOT_READY) {
            return UMX_INPROGRESS;
        }
    }
    return end(copy, status);
}

umx_status
umi_cuda_copy_wait(umi_cuda_copy *copy)
{
    umx_status status = umi_cuda_enter_device(copy->device);

    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.event_wait(copy->event), copy->device,
                                "cuEventSynchronize");
        umi_cuda_leave();
    }
    return end(copy, status);
}

umx_status
umi_cuda_copy_call(const umi_cuda_copy *copy, void (*fn)(void *arg), void *arg)
{
    void      *stream;
    umx_status status = umi_cuda_enter_device(copy->device);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_cuda_stream(copy->device, copy->direction, &stream);
    if (status == UMX_OK && copy->direction == UMI_CUDA_AFTER) {
        status = umi_cuda_check(
            umi_cuda.stream_wait_event(stream, copy->event, 0), copy->device,
            "cuStreamWaitEvent");
    }
    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.call_host(stream, fn, arg),
                                copy->device, "cuLaunchHostFunc");
    }
    umi_cuda_leave();
    return status;
}

/* ---- work of programs ----------------------------------------------------
 */

/* Find the device of a stream, for which that of the memory is current. */
static int
device_of(cu_stream stream, int device)
{
    cu_context context;
    cu_device  found = device;

    if (umi_cuda_enter_device(device) != UMX_OK) {
        return device;
    }
    if (umi_cuda.stream_context(stream, &context) == CU_OK &&
        umi_cuda.push(context) == CU_OK) {
        if (umi_cuda.current_device(&found) != CU_OK) {
            found = device;
        }
        (void)umi_cuda.pop(&context);
    }
    umi_cuda_leave();
    return found;
}

/* Note what is queued in a stream. False: no event can, as the stream is of
 * another context than its device's primary one. */
static bool
note_queued(int device, cu_stream stream, umi_cuda_copy *copy)
{
    cu_event event = NULL;
    bool     is_noted;

    device = device_of(stream, device);
    if (umi_cuda_enter_device(device) != UMX_OK) {
        return false;
    }
    is_noted = take_event(device, &event) == UMX_OK;
    if (is_noted && umi_cuda.event_record(event, stream) != CU_OK) {
        put_event(device, event);
        is_noted = false;
    }
    umi_cuda_leave();
    *copy = (umi_cuda_copy){event, device, UMI_CUDA_AFTER};
    return is_noted;
}

umx_status
umi_cuda_after(int device, uintptr_t stream, umi_cuda_copy *copy)
{
    umx_status status = umx_cuda_query(device, stream);

    if (status != UMX_INPROGRESS) {
        return status;
    }
    if (device == UMX_DEVICE_NONE ||
        !note_queued(device, (cu_stream)stream, copy)) {
        return umx_cuda_wait(device, stream);
    }
    return UMX_INPROGRESS;
}

/* ---- copies that are waited for ------------------------------------------
 */

/* Copy in the context of the device whose memory is `memory`. The copies of a
 * thread that waits are in a stream of their own, so that none of those that
 * nobody waits for is in front of them. */
static umx_status
copy_at_once(const void *memory, umi_cuda_direction direction, void *dst,
             const void *src, size_t len)
{
    int        device;
    void      *stream;
    umx_status status;

    if (len == 0) {
        return UMX_OK;
    }
    status = umi_cuda_device_of(memory, len, &device);
    if (status == UMX_OK) {
        status = umi_cuda_enter_device(device);
    }
    if (status != UMX_OK) {
        return status;
    }
    status = umi_cuda_stream(device, UMI_CUDA_AT_ONCE, &stream);
    if (status == UMX_OK) {
        status = queue(device, direction, dst, src, len, stream);
    }
    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.stream_wait(stream), device,
                                "cuStreamSynchronize");
    }
    umi_cuda_leave();
    return status;
}

umx_status
umi_cuda_copy_in(void *dst, const void *src, size_t len)
{
    return copy_at_once(dst, UMI_CUDA_IN, dst, src, len);
}

umx_status
umi_cuda_copy_out(void *dst, const void *src, size_t len)
{
    return copy_at_once(src, UMI_CUDA_OUT, dst, src, len);
}

umx_status
umi_cuda_copy_across(void *dst, const void *src, size_t len)
{
    int        device; /* of the source, which must have one */
    umx_status status = (len == 0) ? UMX_OK :
                                     umi_cuda_device_of(src, len, &device);

    return (status == UMX_OK) ?
               copy_at_once(dst, UMI_CUDA_ACROSS, dst, src, len) :
               status;
}

/* ---- memory of the host --------------------------------------------------
 */

void
umi_cuda_settle(int device)
{
    cu_stream streams[UMI_CUDA_AFTER];

    pthread_mutex_lock(&lock);
    memcpy(streams, state_of(device)->streams, sizeof(streams));
    pthread_mutex_unlock(&lock);
    if (umi_cuda_enter_device(device) != UMX_OK) {
        return;
    }
    for (int i = 0; i < UMI_CUDA_AFTER; i++) {
        if (streams[i] != NULL) {
            (void)umi_cuda.stream_wait(streams[i]);
        }
    }
    umi_cuda_leave();
}

umx_status
umi_cuda_pin(int device, void *data, size_t len)
{
    cu_result  result;
    umx_status status = umi_cuda_enter_device(device);

    if (status != UMX_OK) {
        return status;
    }
    result = umi_cuda.pin(data, len, CU_PORTABLE);
    status = (result == CU_ALREADY_PINNED) ?
                 UMX_ERR_ALREADY_EXISTS :
                 umi_cuda_check(result, device, "cuMemHostRegister");
    umi_cuda_leave();
    return status;
}

void
umi_cuda_unpin(int device, void *data)
{
    if (umi_cuda_enter_device(device) == UMX_OK) {
        (void)!umi_cuda_check(umi_cuda.unpin(data), device,
                              "cuMemHostUnregister");
        umi_cuda_leave();
    }
}
