/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_kernel.cu: see cuda_kernel.h. `make ptx` compiles it, by NVRTC. */

enum {
    MOVES = 128 /* of a launch: its parameters have 4 KiB */
};

typedef unsigned long long u64;

struct move {
    u64 dst, src, len;
};

struct moves {
    move at[MOVES];
};

/* Copy by words of one kind, and return how many bytes that were. */
template <typename T>
static __device__ u64
copy_words(u64 dst, u64 src, u64 len)
{
    u64 count = len / sizeof(T);

    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        ((T *)dst)[i] = ((const T *)src)[i];
    }
    return count * sizeof(T);
}

/* Block (x, y) has `step` bytes of move y, from x times `step` on; `step` is a
 * multiple of 16. */
extern "C" __global__ void __launch_bounds__(256)
umx_move(moves list, u64 step)
{
    u64 len  = list.at[blockIdx.y].len;
    u64 from = blockIdx.x * step;
    u64 dst  = list.at[blockIdx.y].dst + from;
    u64 src  = list.at[blockIdx.y].src + from;
    u64 done = 0;

    if (from >= len) {
        return;
    }
    len = (len - from < step) ? len - from : step;
    if (((dst | src) & 15) == 0) {
        done = copy_words<uint4>(dst, src, len);
    } else if (((dst | src) & 3) == 0) {
        done = copy_words<unsigned>(dst, src, len);
    }
    (void)copy_words<char>(dst + done, src + done, len - done);
}
