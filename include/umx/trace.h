/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file trace.h  What happens in this process, when, and how long it takes: the
 * events of a trace, and histograms of latencies. Both are off at first, and cost
 * nothing then.
 *
 * An operation lasts from its posting call until `on_done` is about to be called.
 * Names are static: an operation of UCX, such as "send", has that of its call
 * without the prefix.
 *
 * Thread: any.
 */
#ifndef UMX_TRACE_H
#define UMX_TRACE_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- traces --------------------------------------------------------------
 */

typedef enum umx_trace_kind {
    UMX_TRACE_BEGIN = 1, /**< an operation was posted */
    UMX_TRACE_DETAIL,    /**< a layer says what operation it is */
    UMX_TRACE_END,       /**< it is complete: with all there is to know */
    UMX_TRACE_WAIT,      /**< it begins to wait for credit, or for a connection */
    UMX_TRACE_GO,        /**< it waits for that no more */
    UMX_TRACE_SPAN       /**< something that has lasted from `begin_ns` on */
} umx_trace_kind;

enum {
    UMX_TRACE_IS_PART       = 1 << 0, /**< of an operation of a layer */
    UMX_TRACE_IS_RENDEZVOUS = 1 << 1, /**< the receiver has fetched the bytes */
    UMX_TRACE_IS_LOAN       = 1 << 2  /**< it has read them from the sender's
                                         memory */
};

typedef struct umx_trace_event {
    uint64_t    time_ns;   /**< CLOCK_MONOTONIC */
    uint64_t    begin_ns;  /**< END, SPAN: when it began */
    uint64_t    operation; /**< one at a time has this number */
    uint64_t    endpoint;  /**< umx_ep_id(), or 0; DETAIL: a rank + 1, or 0 */
    uint64_t    bytes;
    uint64_t    tag;    /**< or the number of a collective operation */
    const char *name;   /**< NULL: see the BEGIN */
    uint32_t    worker; /**< umx_worker_number() */
    int16_t     status; /**< END: a umx_status */
    uint8_t     kind;   /**< a umx_trace_kind; 0: this one was lost */
    uint8_t     flags;
} umx_trace_event;

/**
 * Begin to record events, in memory that is there from now on: the last
 * `num_events`, rounded up to a power of two.
 * @return UMX_OK; UMX_ERR_BUSY: a trace has begun already;
 *         UMX_ERR_INVALID_PARAM: the number is 0, or beyond 2^26;
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_trace_start(size_t num_events);

/** End the trace; its events can be read until the next one begins, or until
 * umx_trace_release(). */
UMX_API void umx_trace_stop(void);

/** Give the memory of the trace that has ended back to the system. Its events are
 * gone. Does nothing while a trace is recorded, or if there has been none. */
UMX_API void umx_trace_release(void);

/** What a trace consists of. */
typedef struct umx_trace_info {
    uint64_t num_events;  /**< that can be read */
    uint64_t num_dropped; /**< older ones, which later ones have replaced */
    uint64_t begin_ns;    /**< CLOCK_MONOTONIC */
    uint64_t end_ns;
    uint64_t realtime_ns; /**< CLOCK_REALTIME at `begin_ns` */
} umx_trace_info;

/** Describe the trace that umx_trace_stop() has ended; zeros: there is none. */
UMX_API void umx_trace_query(umx_trace_info *info);

/**
 * Read events of that trace, the oldest first, from number `first` on.
 * @return how many were stored in `events`, at most `max`
 */
UMX_API size_t umx_trace_read(umx_trace_event *events, size_t first,
                              size_t max);

/**
 * Say what an operation of a layer is, for traces and histograms. Does nothing
 * unless one of them is on. Thread: the worker's owner.
 * @param name  static; NULL: as before
 * @param rank  the other one, or -1
 */
UMX_API void umx_request_describe(umx_request *req, const char *name,
                                  uint64_t bytes, uint64_t tag, int rank);

/* ---- latencies -----------------------------------------------------------
 */

enum {
    UMX_HISTOGRAM_SUB_BITS = 5, /**< 32 buckets for each power of two */
    UMX_HISTOGRAM_MAX_BITS = 42,
    UMX_HISTOGRAM_BUCKETS =
        (UMX_HISTOGRAM_MAX_BITS - UMX_HISTOGRAM_SUB_BITS + 1)
        << UMX_HISTOGRAM_SUB_BITS
};

/**
 * A histogram of durations in nanoseconds, up to 73 minutes. Bucket i counts what
 * is below umx_histogram_limit(i), and not below that of the one before: the
 * limits are less than 4 % apart.
 */
typedef struct umx_histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t min_ns; /**< UINT64_MAX if there is none */
    uint64_t max_ns;
    uint64_t counts[UMX_HISTOGRAM_BUCKETS];
} umx_histogram;

/** Prepare an empty histogram. */
UMX_API void umx_histogram_init(umx_histogram *histogram);

UMX_API void umx_histogram_record(umx_histogram *histogram, uint64_t ns);

/** Add what `other` has counted. */
UMX_API void umx_histogram_merge(umx_histogram       *histogram,
                                 const umx_histogram *other);

/** The first duration in ns that is above bucket `i`. */
UMX_API uint64_t umx_histogram_limit(size_t i);

/** A duration in ns that `percent` of all do not exceed; 0: there are none. At
 * most 4 % above the exact one; the longest one, if this is beyond 73 minutes. */
UMX_API uint64_t umx_histogram_percentile(const umx_histogram *histogram,
                                          double               percent);

/** Measure the latencies of operations that are posted from now on, by worker and
 * name; or measure no more. */
UMX_API void umx_latency_enable(bool is_on);

UMX_API bool umx_latency_is_enabled(void);

/** Take a histogram: it counts on, and lasts until this returns. */
typedef void (*umx_latency_fn)(uint64_t worker, const char *name,
                               const umx_histogram *histogram, void *arg);

/** Walk the histograms of all workers of this process. `fn` makes no call of
 * libumx. */
UMX_API void umx_latency_each(umx_latency_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
