/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h: what the files of the stand-in share. One lock is of everything
 * but the bytes; whoever waits for something waits for any change. */
#ifndef STANDIN_INTERNAL_H
#define STANDIN_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "standin/standin.h"

enum {
    OK                   = 0,
    INVALID_VALUE        = 1,
    OUT_OF_MEMORY        = 2,
    NOT_INITIALIZED      = 3,
    NO_DEVICE            = 100,
    INVALID_DEVICE       = 101,
    INVALID_CONTEXT      = 201,
    INVALID_PTX          = 218,
    PEER_UNSUPPORTED     = 217,
    INVALID_HANDLE       = 400,
    ILLEGAL_ADDRESS      = 700,
    ILLEGAL_STATE        = 401,
    NOT_FOUND            = 500,
    NOT_READY            = 600,
    CONTEXT_DESTROYED    = 709,
    ALREADY_REGISTERED   = 712,
    NOT_REGISTERED       = 713,
    NOT_SUPPORTED        = 801,
    CAPTURE_UNSUPPORTED  = 900,
    CAPTURE_INVALIDATED  = 901,
    CAPTURE_IMPLICIT     = 906,
    CAPTURED_EVENT       = 907,
    CAPTURE_WRONG_THREAD = 908
};

/* ---- calls (fail.c) ------------------------------------------------------
 */

/* What a function of the driver asks for. */
enum {
    EARLY    = 1, /* nothing: it works before cuInit() */
    TOLERANT = 2, /* it works after an error that stays, too */
    CONTEXT  = 4, /* a current context */
    UNSAFE   = 8  /* that no thread captures in the global mode */
};

/* The lock (engine.c). */
void standin_acquire(void);
void standin_release_lock(void);
/* Something has changed; wait for that, without the lock. */
void standin_wake(void);
void standin_await(void);

extern int  standin_sticky; /* the error that stays */
extern bool standin_is_initialized;

/* Begin a call: it is counted, and may not be made. */
int standin_enter(const char *name, unsigned what);

/* Begin the function, holding the lock, or return from it. */
#define ENTER(what)                                   \
    do {                                              \
        int entered_ = standin_enter(__func__, what); \
        if (entered_ != OK) {                         \
            return entered_;                          \
        }                                             \
    } while (0)
#define LEAVE(result) return standin_leave(result)

/* Give the lock back; `result`. */
int standin_leave(int result);

/* The result of the next call of that name; OK: it does not fail. */
int standin_next(const char *name);

/* ---- devices and contexts (device.c, context.c) --------------------------
 */

struct standin_context {
    cu_context *next;
    int         device;
    unsigned    retained;
    bool        is_primary;
    bool        is_destroyed;
    cu_stream  *legacy, *per_thread;
};

typedef struct standin_settings {
    int    num_devices; /* that are visible */
    int    physical[STANDIN_MAX_DEVICES];
    size_t memory;
    bool   is_open, can_export, can_import, has_peers, is_logging;
    double step_us, gbs;
    bool   is_held;
    bool   has_engine;
} standin_settings;

extern standin_settings standin_set;

bool        standin_is_device(int device);
cu_context *standin_context(void);          /* the current one, or NULL */
cu_context *standin_context_of(int device); /* the primary one, or NULL */
void        standin_push(cu_context *context);
void        standin_pop(void);
bool        standin_is_context(cu_context *context);
int         standin_make_primary(int device); /* unless it is there */

/* ---- memory (memory.c) ---------------------------------------------------
 */

typedef enum kind {
    KIND_DEVICE,
    KIND_MANAGED,
    KIND_PINNED,
    KIND_REGISTERED,
    KIND_IMPORTED,
    KIND_ADDED
} kind;

typedef struct range {
    struct range *next;
    char         *at;   /* the program's address */
    char         *real; /* where the bytes are */
    size_t        len;
    kind          kind;
    int           device; /* -1: of none */
    bool          is_managed;
    uint64_t      id;
    cu_context   *context; /* whose end is its end, or NULL */
    cu_pool      *pool;
    size_t        offset, size; /* in the device's file; or what is mapped */
    int           slot;         /* its word in there while it is exported */
    unsigned      refs;
    cu_ipc        handle;
} range;

/* The start of a device's file: who opens it can see what is freed. */
enum {
    ARENA_MAGIC = 0x57d1,
    ARENA_SLOTS = 8191,
    ARENA_HEAD  = 65536
};

typedef struct arena_head {
    uint64_t magic;
    uint64_t ids[ARENA_SLOTS]; /* of memory that is exported; 0: none */
} arena_head;

range      *standin_ranges(void); /* the first */
range      *standin_find(cu_pointer pointer);
bool        standin_is_of_device(const range *r);
arena_head *standin_arena(int device, int *fd_p);
int  standin_allocate(int device, size_t len, cu_pool *pool, range **range_p);
void standin_keep(range r);
/* Free the range whose start it is, if it is of that kind. */
bool standin_drop(const void *at, kind kind);
void standin_drop_of(const cu_context *context);
/* Map `size` bytes of a file at two addresses. */
bool standin_map(int fd, size_t offset, size_t size, char **at_p,
                 char **real_p);

/* ---- streams (stream.c, event.c, capture.c) ------------------------------
 */

typedef struct capture {
    cu_stream *origin;
    int        mode;
    pthread_t  thread;
    bool       is_invalid;
} capture;

/* Something that will be done. */
typedef struct mark {
    unsigned        refs;
    bool            is_done;
    struct timespec time;
} mark;

typedef enum op_kind {
    OP_COPY,
    OP_FILL,
    OP_KERNEL,
    OP_HOST_FN,
    OP_CALLBACK,
    OP_MARK,
    OP_WAIT,
    OP_WAIT_VALUE,
    OP_WRITE_VALUE,
    OP_FREE,
    OP_MOVES
} op_kind;

/* A move of our kernel, as it is in its parameters. */
typedef struct standin_move {
    cu_pointer dst, src;
    uint64_t   len;
} standin_move;

typedef struct op {
    struct op  *next;
    op_kind     what;
    char       *dst;
    const char *src;
    char       *staged; /* freed when it is done */
    size_t      len;
    uint32_t    value;
    unsigned    flags;
    double      delay_us;
    cu_host_fn  function;
    cu_callback callback;
    void       *arg;
    mark       *mark;
} op;

struct standin_stream {
    cu_stream  *next;
    cu_context *context;
    op         *head, *tail;
    uint64_t    given, done;
    bool        is_up, is_dead, is_nonblocking;
    bool        is_ended;
    op         *asked; /* what the host is to call (engine.c) */
    capture    *capture;
};

struct standin_event {
    cu_event   *next;
    cu_context *context;
    mark       *mark;
    capture    *capture; /* it was recorded in */
    bool        has_time;
};

cu_stream *standin_streams(void);
/* The stream that a handle names. */
int standin_stream_of(cu_stream *handle, cu_stream **stream_p);
int standin_queue(cu_stream *handle, op o);
/* A mark behind all that is queued there. */
mark *standin_mark(cu_stream *stream);
void  standin_release(mark *m);
/* Wait; the lock is not held meanwhile. The error that stays. */
int  standin_wait(mark *m);
void standin_drain(const cu_context *context); /* NULL: all */
void standin_end_streams(cu_context *context);
void standin_start_stream(cu_stream *stream);
void standin_serve(cu_stream *stream);
void standin_call(cu_stream *stream, const op *o);
/* Is this the process of a stream; has its first process ended? */
bool standin_has_host(void);
bool standin_is_orphan(void);
void standin_ask_host(cu_stream *stream, op *o);
/* Free memory later, when a thread of the program has the lock. */
void standin_discard(void *memory);
void standin_free_discarded(void);
void standin_unlink_stream(const cu_stream *stream);
void standin_forget_copying(void);
void standin_set_copying(cu_stream *handle);

int  standin_check_capture(void);
void standin_invalidate(capture *c);
void standin_forget_capture(const capture *c);

#endif
