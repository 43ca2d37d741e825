/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/atomic.h"

bool
umi_atomic_is_valid(const umx_atomic *atomic)
{
    return (unsigned)atomic->op <= UMX_ATOMIC_CSWAP &&
           (atomic->size == 4 || atomic->size == 8) &&
           atomic->offset % atomic->size == 0;
}

/* Sequentially consistent: a signal is ordered behind the bytes it announces,
 * and nothing on x86 is cheaper. */
#define DEFINE_APPLY(name, type)                                             \
    static type name(const umx_atomic *atomic, type *address)                \
    {                                                                        \
        type value   = (type)atomic->value;                                  \
        type compare = (type)atomic->compare;                                \
                                                                             \
        switch (atomic->op) {                                                \
        case UMX_ATOMIC_ADD:                                                 \
            return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);     \
        case UMX_ATOMIC_AND:                                                 \
            return __atomic_fetch_and(address, value, __ATOMIC_SEQ_CST);     \
        case UMX_ATOMIC_OR:                                                  \
            return __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST);      \
        case UMX_ATOMIC_XOR:                                                 \
            return __atomic_fetch_xor(address, value, __ATOMIC_SEQ_CST);     \
        case UMX_ATOMIC_SWAP:                                                \
            return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);    \
        case UMX_ATOMIC_CSWAP:                                               \
            __atomic_compare_exchange_n(address, &compare, value, false,     \
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
            return compare; /* what was there, in either case */             \
        }                                                                    \
        return 0;                                                            \
    }
DEFINE_APPLY(apply_32, uint32_t)
DEFINE_APPLY(apply_64, uint64_t)
#undef DEFINE_APPLY

uint64_t
umi_atomic_apply(const umx_atomic *atomic, void *address)
{
    return (atomic->size == 4) ? apply_32(atomic, address) :
                                 apply_64(atomic, address);
}
