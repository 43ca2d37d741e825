/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ring.h  A ring of commands, which threads or kernels of a GPU write and
 * a proxy (proxy.h) carries out.
 *
 * This header needs nothing but <stdint.h>, and compiles as C11, C++17, and
 * CUDA, by nvcc and NVRTC. On the host its atomic operations are the __atomic
 * builtins of gcc and clang; on a device they are the PTX instructions
 * st.relaxed.sys, st.release.sys, ld.acquire.sys and atom.*.relaxed.sys.
 *
 * A command has 16 bytes, two words:
 *
 *   w0 = op:4 | flags:4 | dst:16 | region:8 | bytes:32
 *   w1 = phase:1 | local / 16 : 31 | remote / 16 : 32      put
 *   w1 = phase:1 | value:31        | slot:32               signal
 *
 * from the lowest bit on. A producer stores w0, then w1 with release semantics.
 * The phase is another one in each lap, so the proxy sees in w1 that the command
 * is there; nobody clears anything. Commands have numbers, which begin where
 * the ring says. `retired` is the number of the first command that is not over;
 * a producer reads it only when its copy says that the ring is full.
 */
#ifndef UMX_RING_H
#define UMX_RING_H

#ifdef __CUDACC_RTC__
typedef unsigned int       umx_ring_u32;
typedef unsigned long long umx_ring_u64;
#else
#include <stdint.h>
typedef uint32_t umx_ring_u32;
typedef uint64_t umx_ring_u64;
#endif

#ifdef __CUDACC__
#define UMX_RING_FN __host__ __device__ inline
#else
#define UMX_RING_FN static inline
#endif

/** What a command does. */
enum umx_ring_op {
    UMX_RING_NOP     = 0,
    UMX_RING_PUT     = 1, /* write memory of a rank */
    UMX_RING_SIGNAL  = 2, /* add to, or set, a number of 8 bytes at a rank */
    UMX_RING_QUIET   = 3, /* retired when all before is in the ranks' memory */
    UMX_RING_BARRIER = 4, /* quiet, then wait for the others' barrier */
    UMX_RING_INVALID = 15 /* an offset that a command cannot hold */
};

enum umx_ring_flag {
    UMX_RING_SET = 1 /* of a signal: store the value instead of adding it */
};

typedef struct umx_ring_command {
    umx_ring_u64 w0;
    umx_ring_u64 w1;
} umx_ring_command;

/** What producers and proxy share beside the commands; each cache line has one
 * writer, or is seldom written. */
typedef struct umx_ring_words {
    umx_ring_u64 retired; /* the proxy's */
    umx_ring_u64 pad0[15];
    umx_ring_u64 head; /* several producers: the next number that is free */
    umx_ring_u64 pad1[15];
    umx_ring_u64 error; /* 0, or why the ring has ended: UMX_RING_STATUS() */
    umx_ring_u64 doze;  /* not 0: the proxy sleeps, or is about to */
    umx_ring_u64 pad2[14];
} umx_ring_words;

/** Bytes of the memory of a ring: the words, then the commands. */
#define UMX_RING_BYTES(capacity) \
    (sizeof(umx_ring_words) + (capacity) * sizeof(umx_ring_command))

enum umx_ring_kind {
    UMX_RING_SEVERAL = 1, /* producers */
    UMX_RING_FENCE   = 2  /* a fence is needed between a store and a look at
                             `doze`: the proxy cannot make one for producers */
};

/** A ring, as producers see it; a kernel gets it as an argument. */
typedef struct umx_ring {
    umx_ring_command *commands;
    umx_ring_words   *words;
    umx_ring_u64      first; /* number of the first command */
    umx_ring_u64      mask;  /* capacity - 1; the capacity is a power of two */
    umx_ring_u32      shift; /* the capacity is 1 << shift */
    umx_ring_u32      kind;
    void (*wake)(void *arg); /* the host's: wakes the proxy; or NULL: nobody is
                              * woken, and the proxy is to look by itself */
    void *arg;
    int (*yield)(void); /* the host's: lets other threads run; or NULL */
    /* The host's: the process that `forks` counts in is the proxy's as long as
     * `*forks` is `made_in`. NULL: nobody looks. */
    const umx_ring_u32 *forks;
    umx_ring_u64        made_in;
} umx_ring;

/** A producer. A thread has its own; of a ring without UMX_RING_SEVERAL there
 * is one. */
typedef struct umx_ring_producer {
    umx_ring     ring;
    umx_ring_u64 head;    /* the number after that of its last command */
    umx_ring_u64 retired; /* as it was when the ring was last full */
} umx_ring_producer;

/** What ended a ring, from the word `error`: a umx_status, and the rank, or -1. */
#define UMX_RING_STATUS(error) ((int)(umx_ring_u32)(error))
#define UMX_RING_RANK(error) ((int)((error) >> 32) - 1)

enum {
    /* An `error` that is no umx_status: this process is a child of fork(), and
     * the proxy is its parent's. */
    UMX_RING_FORKED = 1
};

/* ---- memory --------------------------------------------------------------
 */

UMX_RING_FN void
umx_ring_store_relaxed(umx_ring_u64 *word, umx_ring_u64 value)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value)
                 : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
#endif
}

UMX_RING_FN void
umx_ring_store_release(umx_ring_u64 *word, umx_ring_u64 value)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value)
                 : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

UMX_RING_FN umx_ring_u64
umx_ring_load_acquire(const umx_ring_u64 *word)
{
#ifdef __CUDA_ARCH__
    umx_ring_u64 value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"(word)
                 : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

UMX_RING_FN umx_ring_u64
umx_ring_fetch_add(umx_ring_u64 *word, umx_ring_u64 value)
{
#ifdef __CUDA_ARCH__
    umx_ring_u64 old;

    asm volatile("atom.add.relaxed.sys.global.u64 %0, [%1], %2;"
                 : "=l"(old)
                 : "l"(word), "l"(value)
                 : "memory");
    return old;
#else
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
#endif
}

/* Store `value` if the word is `old`; returns what was there. */
UMX_RING_FN umx_ring_u64
umx_ring_compare_swap(umx_ring_u64 *word, umx_ring_u64 old, umx_ring_u64 value)
{
#ifdef __CUDA_ARCH__
    umx_ring_u64 found;

    asm volatile("atom.cas.relaxed.sys.global.b64 %0, [%1], %2, %3;"
                 : "=l"(found)
                 : "l"(word), "l"(old), "l"(value)
                 : "memory");
    return found;
#else
    (void)__atomic_compare_exchange_n(word, &old, value, 0, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED);
    return old;
#endif
}


/* ---- commands ------------------------------------------------------------
 */

UMX_RING_FN umx_ring_u64
umx_ring_w0(unsigned op, unsigned flags, unsigned dst, unsigned region,
            umx_ring_u32 bytes)
{
    return (umx_ring_u64)op | (umx_ring_u64)flags << 4 |
           (umx_ring_u64)(dst & 0xffff) << 8 |
           (umx_ring_u64)(region & 0xff) << 24 | (umx_ring_u64)bytes << 32;
}

/**
 * Write `bytes` bytes, from `local` in this rank's memory of the region, to
 * `remote` in that of `dst`. Both offsets are multiples of 16; `local` is below
 * 32 GiB and `remote` below 64 GiB. Others end the ring with an error.
 */
UMX_RING_FN umx_ring_command
umx_ring_put(unsigned dst, unsigned region, umx_ring_u32 bytes,
             umx_ring_u64 local, umx_ring_u64 remote)
{
    umx_ring_command command;
    unsigned         op = UMX_RING_PUT;

    if (((local | remote) & 15) != 0 || local >> 35 != 0 || remote >> 36 != 0) {
        op = UMX_RING_INVALID;
    }
    command.w0 = umx_ring_w0(op, 0, dst, region, bytes);
    command.w1 = (local >> 4) << 1 | (remote >> 4) << 32;
    return command;
}

/** Add `value`, below 2**31, to the number `slot` of 8 bytes in the region of
 * `dst`, or with UMX_RING_SET store it. */
UMX_RING_FN umx_ring_command
umx_ring_signal(unsigned dst, unsigned region, umx_ring_u32 slot,
                umx_ring_u32 value, unsigned flags)
{
    umx_ring_command command;

    command.w0 = umx_ring_w0((value >> 31 != 0) ? (unsigned)UMX_RING_INVALID :
                                                  (unsigned)UMX_RING_SIGNAL,
                             flags, dst, region, 0);
    command.w1 = (umx_ring_u64)(value & 0x7fffffff) << 1 |
                 (umx_ring_u64)slot << 32;
    return command;
}

UMX_RING_FN umx_ring_command
umx_ring_quiet(void)
{
    umx_ring_command command = {UMX_RING_QUIET, 0};

    return command;
}

/** Wait for the barrier of `group`, 0 to 255, of every rank. */
UMX_RING_FN umx_ring_command
umx_ring_barrier(unsigned group)
{
    umx_ring_command command;

    command.w0 = umx_ring_w0(UMX_RING_BARRIER, 0, 0, group, 0);
    command.w1 = 0;
    return command;
}

UMX_RING_FN umx_ring_command
umx_ring_nop(void)
{
    umx_ring_command command = {UMX_RING_NOP, 0};

    return command;
}

/* ---- both sides ----------------------------------------------------------
 */

/* The phase of the command `number`. */
UMX_RING_FN umx_ring_u64
umx_ring_phase(const umx_ring *ring, umx_ring_u64 number)
{
    return ((number >> ring->shift) & 1) ^ 1;
}

/** Put a ring into memory of UMX_RING_BYTES(1 << shift) bytes, aligned to 64,
 * which nobody uses yet. */
UMX_RING_FN void
umx_ring_init(umx_ring *ring, void *memory, umx_ring_u32 shift,
              umx_ring_u32 kind, umx_ring_u64 first)
{
    ring->words    = (umx_ring_words *)memory;
    ring->commands = (umx_ring_command *)(ring->words + 1);
    ring->first    = first;
    ring->mask     = ((umx_ring_u64)1 << shift) - 1;
    ring->shift    = shift;
    ring->kind     = kind;
    ring->wake     = 0;
    ring->arg      = 0;
    ring->yield    = 0;
    ring->forks    = 0;
    ring->made_in  = 0;
    ring->words->retired = first;
    ring->words->head    = first;
    ring->words->error   = 0;
    ring->words->doze    = 0;
    for (umx_ring_u64 number = first; number - first <= ring->mask; number++) {
        umx_ring_command *command = &ring->commands[number & ring->mask];

        command->w0 = 0;
        command->w1 = umx_ring_phase(ring, number) ^ 1;
    }
}

UMX_RING_FN void
umx_ring_producer_init(umx_ring_producer *producer, const umx_ring *ring)
{
    producer->ring    = *ring;
    producer->head    = ring->first;
    producer->retired = ring->first;
}

/* ---- producers -----------------------------------------------------------
 */

/* Write the command `number`, whose place is free. */
UMX_RING_FN void
umx_ring_write(const umx_ring *ring, umx_ring_u64 number,
               umx_ring_command command)
{
    umx_ring_command *place = &ring->commands[number & ring->mask];

    umx_ring_store_relaxed(&place->w0, command.w0);
    umx_ring_store_release(&place->w1, (command.w1 & ~(umx_ring_u64)1) |
                                           umx_ring_phase(ring, number));
}

/** Wake the proxy if it sleeps: after commands that umx_ring_push() has not
 * written. A device cannot; the proxy looks by itself now and then. */
UMX_RING_FN void
umx_ring_wake(const umx_ring *ring)
{
#ifndef __CUDA_ARCH__
    if ((ring->kind & UMX_RING_FENCE) != 0) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    } else {
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
    /* Who cannot wake it leaves `doze` to those who can. */
    if (__atomic_load_n(&ring->words->doze, __ATOMIC_RELAXED) != 0 &&
        ring->wake != 0 &&
        __atomic_exchange_n(&ring->words->doze, 0, __ATOMIC_ACQ_REL) != 0) {
        ring->wake(ring->arg);
    }
#endif
}

/* Let a loop that waits, for the nth time, go easy on the core, and let others
 * have it now and then. */
UMX_RING_FN void
umx_ring_pause(const umx_ring *ring, unsigned n)
{
#ifdef __CUDA_ARCH__
    (void)ring;
    (void)n;
#else
    if (n % 64 == 63 && ring->yield != 0) {
        (void)ring->yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
#endif
}

/* Why nothing is retired any more; 0: it may be. */
UMX_RING_FN umx_ring_u64
umx_ring_error(const umx_ring *ring)
{
#ifndef __CUDA_ARCH__
    if (ring->forks != 0 && *ring->forks != ring->made_in) {
        return UMX_RING_FORKED;
    }
#endif
    return umx_ring_load_acquire(&ring->words->error);
}

/** Is the command `number` over? */
UMX_RING_FN int
umx_ring_is_retired(const umx_ring *ring, umx_ring_u64 number)
{
    umx_ring_u64 retired = umx_ring_load_acquire(&ring->words->retired);

    return (retired - number - 1) >> 63 == 0;
}

/** Wait until the command `number` is over. Returns 0, or the error that has
 * ended the ring before. */
UMX_RING_FN umx_ring_u64
umx_ring_wait(const umx_ring *ring, umx_ring_u64 number)
{
    for (unsigned n = 0; !umx_ring_is_retired(ring, number); n++) {
        umx_ring_u64 error = umx_ring_error(ring);

        if (error != 0) {
            return error;
        }
        umx_ring_pause(ring, n);
    }
    return 0;
}

/* Wait until the place of the command `number` is free. */
UMX_RING_FN umx_ring_u64
umx_ring_wait_room(umx_ring_producer *producer, umx_ring_u64 number)
{
    const umx_ring *ring = &producer->ring;

    producer->retired = umx_ring_load_acquire(&ring->words->retired);
    if (number - producer->retired <= ring->mask) {
        return 0;
    }
    umx_ring_wake(ring); /* for what has been written before */
    for (unsigned n = 0; number - producer->retired > ring->mask; n++) {
        umx_ring_u64 error = umx_ring_error(ring);

        if (error != 0) {
            return error;
        }
        umx_ring_pause(ring, n);
        producer->retired = umx_ring_load_acquire(&ring->words->retired);
    }
    return 0;
}

/**
 * Write `count` commands, which follow each other also if other producers write
 * at the same time. While the ring is full this waits for the proxy. The number
 * of the last command is `producer->head - 1` afterwards.
 *
 * @return 0, or the error that has ended the ring: some have not been written
 */
UMX_RING_FN umx_ring_u64
umx_ring_push(umx_ring_producer *producer, const umx_ring_command *commands,
              umx_ring_u64 count)
{
    const umx_ring *ring = &producer->ring;

    if ((ring->kind & UMX_RING_SEVERAL) != 0) {
        producer->head = umx_ring_fetch_add(&ring->words->head, count);
    }
    for (umx_ring_u64 i = 0; i < count; i++) {
        if (producer->head - producer->retired > ring->mask) {
            umx_ring_u64 error = umx_ring_wait_room(producer, producer->head);

            if (error != 0) {
                return error;
            }
        }
        umx_ring_write(ring, producer->head++, commands[i]);
    }
    umx_ring_wake(ring);
    return 0;
}

/* Reserve at most `count` places that are free now, from `producer->head` on. */
UMX_RING_FN umx_ring_u64
umx_ring_reserve(umx_ring_producer *producer, umx_ring_u64 count)
{
    const umx_ring *ring       = &producer->ring;
    int             is_several = (ring->kind & UMX_RING_SEVERAL) != 0;

    for (;;) {
        umx_ring_u64 head, used;

        /* `retired` first: it never is beyond the head that is read after it. */
        producer->retired = umx_ring_load_acquire(&ring->words->retired);
        head = is_several ? umx_ring_load_acquire(&ring->words->head) :
                            producer->head;
        used = head - producer->retired;
        if (used > ring->mask) {
            return 0;
        }
        if (count > ring->mask + 1 - used) {
            count = ring->mask + 1 - used;
        }
        if (!is_several || umx_ring_compare_swap(&ring->words->head, head,
                                                 head + count) == head) {
            producer->head = head;
            return count;
        }
    }
}

/**
 * Write as many of `count` commands as there is room for, without waiting.
 *
 * @return how many; the number of the last is `producer->head - 1` unless that
 *         is 0
 */
UMX_RING_FN umx_ring_u64
umx_ring_try_push(umx_ring_producer *producer, const umx_ring_command *commands,
                  umx_ring_u64 count)
{
    count = umx_ring_reserve(producer, count);
    for (umx_ring_u64 i = 0; i < count; i++) {
        umx_ring_write(&producer->ring, producer->head++, commands[i]);
    }
    if (count != 0) {
        umx_ring_wake(&producer->ring);
    }
    return count;
}

#endif
