#include "fake_cuda.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RANGES = 8
};

typedef struct range {
    char  *data;
    size_t len;
    int    device;
    bool   is_managed;
} range;

struct context {
    int device;
};

fake_cuda_state fake_cuda = {.current = -1};

static range          ranges[MAX_RANGES];
static unsigned       num_ranges;
static struct context contexts[FAKE_CUDA_DEVICES];
static int            stack[8];

void
fake_cuda_reset(void)
{
    memset(ranges, 0, sizeof(ranges));
    num_ranges = 0;
    fake_cuda  = (fake_cuda_state){.current = -1};
}

void
fake_cuda_add(void *data, size_t len, int device, bool is_managed)
{
    ranges[num_ranges++ % MAX_RANGES] = (range){data, len, device, is_managed};
}

static const range *
find(uint64_t pointer)
{
    for (unsigned i = 0; i < MAX_RANGES; i++) {
        uint64_t start = (uintptr_t)ranges[i].data;

        if (pointer >= start && pointer - start < ranges[i].len) {
            return &ranges[i];
        }
    }
    return NULL;
}

static int
result_of(const char *name)
{
    return (fake_cuda.failing != NULL && strcmp(fake_cuda.failing, name) == 0) ?
               fake_cuda.result :
               0;
}

/* ---- the driver ----------------------------------------------------------
 */

static int
init(unsigned flags)
{
    (void)flags;
    return fake_cuda.is_deviceless ? 100 : 0;
}

static int
error_name(int result, const char **name_p)
{
    *name_p = "CUDA_ERROR_OF_A_TEST";
    return (result == 999) ? 1 : 0;
}

static int
pointer_attributes(unsigned count, const int *attributes, void **values,
                   unsigned long long pointer)
{
    const range *r = find(pointer);

    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case 2:
            *(unsigned *)values[i] = (r == NULL) ? 0 : (r->device < 0) ? 1 : 2;
            break;
        case 8:
            *(unsigned *)values[i] = (r != NULL && r->is_managed);
            break;
        case 9:
            *(int *)values[i] = (r != NULL) ? r->device : -2;
            break;
        case 11:
            *(uint64_t *)values[i] = (r != NULL) ? (uintptr_t)r->data : 0;
            break;
        case 12:
            *(size_t *)values[i] = (r != NULL) ? r->len : 0;
            break;
        default:
            abort();
        }
    }
    return result_of("cuPointerGetAttributes");
}

static int
device_get(int *device_p, int ordinal)
{
    *device_p = ordinal;
    return (ordinal < FAKE_CUDA_DEVICES) ? result_of("cuDeviceGet") : 101;
}

static int
retain(struct context **context_p, int device)
{
    int result = result_of("cuDevicePrimaryCtxRetain");

    if (result == 0) {
        fake_cuda.retained[device]++;
        contexts[device].device = device;
        *context_p              = &contexts[device];
    }
    return result;
}

static int
push(struct context *context)
{
    int result = result_of("cuCtxPushCurrent_v2");

    if (result == 0) {
        stack[fake_cuda.depth++] = fake_cuda.current;
        fake_cuda.current        = context->device;
    }
    return result;
}

static int
pop(struct context **context_p)
{
    if (fake_cuda.depth == 0) {
        abort();
    }
    *context_p        = &contexts[fake_cuda.current];
    fake_cuda.current = stack[--fake_cuda.depth];
    return 0;
}

/* `len` bytes of device memory, in its context. */
static void
check_place(uint64_t pointer, size_t len)
{
    const range *r = find(pointer);

    if (r == NULL || r->device != fake_cuda.current ||
        len > r->len - (pointer - (uintptr_t)r->data)) {
        abort();
    }
}

static int
copy_htod(unsigned long long dst, const void *src, size_t len)
{
    check_place(dst, len);
    memcpy((void *)(uintptr_t)dst, src, len);
    fake_cuda.copies++;
    return result_of("cuMemcpyHtoD_v2");
}

static int
copy_dtoh(void *dst, unsigned long long src, size_t len)
{
    check_place(src, len);
    memcpy(dst, (void *)(uintptr_t)src, len);
    fake_cuda.copies++;
    return result_of("cuMemcpyDtoH_v2");
}

static int
stream_wait(const void *stream)
{
    if (fake_cuda.depth == 0) {
        abort();
    }
    fake_cuda.waits++;
    fake_cuda.waited = stream;
    return result_of("cuStreamSynchronize");
}

/* ---- the linker's --------------------------------------------------------
 */

void *__real_dlopen(const char *path, int flags);
void *__real_dlsym(void *handle, const char *symbol);
void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *handle, const char *symbol);

void *
__wrap_dlopen(const char *path, int flags)
{
    if (path == NULL || strcmp(path, "libcuda.so.1") != 0) {
        return __real_dlopen(path, flags);
    }
    return fake_cuda.is_missing ? NULL : &fake_cuda;
}

void *
__wrap_dlsym(void *handle, const char *symbol)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
#define ROW(symbol, function) {symbol, (void (*)(void))(function)}
        ROW("cuInit", init),
        ROW("cuGetErrorName", error_name),
        ROW("cuPointerGetAttributes", pointer_attributes),
        ROW("cuDeviceGet", device_get),
        ROW("cuDevicePrimaryCtxRetain", retain),
        ROW("cuCtxPushCurrent_v2", push),
        ROW("cuCtxPopCurrent_v2", pop),
        ROW("cuMemcpyHtoD_v2", copy_htod),
        ROW("cuMemcpyDtoH_v2", copy_dtoh),
        ROW("cuStreamSynchronize", stream_wait),
#undef ROW
    };

    if (handle != &fake_cuda) {
        return __real_dlsym(handle, symbol);
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (strcmp(symbol, table[i].name) == 0 &&
            (fake_cuda.no_symbol == NULL ||
             strcmp(symbol, fake_cuda.no_symbol) != 0)) {
            return *(void **)(uintptr_t)&table[i].function;
        }
    }
    return NULL;
}
