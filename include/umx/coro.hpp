/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file coro.hpp  Coroutines of C++20 over the requests of libumx.
 *
 *   umx::task<> greet(umx_ep *ep) {
 *       umx_buffer buf = umx_host_buffer("hello", 5);
 *       co_await umx::post([&](auto *params, auto **req_p, auto *) {
 *           return umx_tag_send(ep, 7, &buf, params, req_p);
 *       });
 *   }
 *   umx::run(worker, greet(ep));
 *
 * A failure is thrown as umx::error. To destroy a task that waits cancels its
 * operation; the memory is the caller's when the destructor returns. One coroutine
 * at a time awaits a task or an event. If that is destroyed, nothing resumes it.
 *
 * Thread: the worker's owner. Coroutines go on inside (P) calls, and make none: they
 * do not destroy tasks that wait for memory of a device, which waits for the device.
 */
#ifndef UMX_CORO_HPP
#define UMX_CORO_HPP

#include <umx/umx.h>

/* clang has coroutines since version 14, and tells the library since 17. */
#if defined(__clang__) && !defined(__cpp_impl_coroutine)
#define __cpp_impl_coroutine 201902L
#endif
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <variant>

namespace umx {

/** A failure of libumx. */
struct error : std::runtime_error {
    const umx_status status;
    explicit error(umx_status s) : std::runtime_error(umx_status_string(s)), status(s) {}
};

/** Throw umx::error if `status` is a failure. */
inline void check(umx_status status) { if (status < 0) { throw error(status); } }

/** What one coroutine can wait for. Either may be destroyed first: it tells the other. */
struct awaited {
    struct wait { /* in the frame of the coroutine that waits */
        awaited *of;
        std::coroutine_handle<> waiter = std::noop_coroutine();
        explicit wait(awaited &what) : of(what.is_over ? nullptr : &what) {
            if (what.by) { throw std::logic_error("umx: another coroutine awaits this"); }
            if (of) { of->by = this; }
        }
        wait(wait &&) = delete;
        ~wait() { if (of) { of->by = nullptr; } }
        bool await_ready() const noexcept { return of == nullptr; }
        void await_suspend(std::coroutine_handle<> self) noexcept { waiter = self; }
        void await_resume() const noexcept {}
    };
    wait *by = nullptr;
    bool is_over = false;
    awaited() = default;
    awaited(awaited &&) = delete;
    ~awaited() { if (by) { by->of = nullptr; } }
    /** Say that it is over; return who goes on. */
    std::coroutine_handle<> finish() noexcept {
        is_over = true;
        if (!by) { return std::noop_coroutine(); }
        by->of = nullptr;
        return std::exchange(by, nullptr)->waiter;
    }
};

/** What the promises of all tasks share: the result, and who waits for it. */
template <class Value> struct promise_base : awaited {
    std::variant<std::monostate, Value, std::exception_ptr> end;
    bool is_started = false;
    struct resume_waiter : std::suspend_always {
        awaited *self;
        auto await_suspend(std::coroutine_handle<>) noexcept { return self->finish(); }
    };
    std::suspend_always initial_suspend() noexcept { return {}; }
    resume_waiter final_suspend() noexcept { return {{}, this}; }
    void unhandled_exception() { end.template emplace<2>(std::current_exception()); }
};

template <class T> struct promise : promise_base<T> {
    void return_value(T value) { this->end.template emplace<1>(std::move(value)); }
};
template <> struct promise<void> : promise_base<char> { void return_void() { end.emplace<1>(); } };

/** A coroutine, which begins when it is awaited, or by start(). */
template <class T = void> class task {
public:
    struct promise_type : promise<T> {
        task get_return_object() { return task(handle::from_promise(*this)); }
        T result() {
            auto &how = this->end;
            if (how.index() == 0) { throw std::logic_error("umx: the task is not done"); }
            if (how.index() == 2) { std::rethrow_exception(std::get<2>(how)); }
            if constexpr (!std::is_void_v<T>) { return std::move(std::get<1>(how)); }
        }
    };
    using handle = std::coroutine_handle<promise_type>;
    struct awaiter : awaited::wait {
        promise_type &self;
        explicit awaiter(promise_type &what) : wait(what), self(what) {}
        T await_resume() { return self.result(); }
    };

    task(task &&other) noexcept : self_(std::exchange(other.self_, {})) {}
    task &operator=(task other) noexcept { std::swap(self_, other.self_); return *this; }
    ~task() { if (self_) { self_.destroy(); } }

    /** Begin it; the call returns when it waits for something, or is done. */
    void start() { if (!std::exchange(state().is_started, true)) { self_.resume(); } }
    /** A task that was moved from is done, too, without a result. */
    bool done() const noexcept { return !self_ || self_.promise().is_over; }
    /** What a task that is done has returned, or thrown. */
    T result() { return state().result(); }
    /* It begins here and not in await_suspend(), so that at -O0 a loop needs no stack. */
    awaiter operator co_await() { start(); return awaiter(state()); }

private:
    explicit task(handle self) : self_(self) {}
    promise_type &state() const {
        return self_ ? self_.promise() : throw std::logic_error("umx: the task was moved from");
    }
    handle self_;
};

/**
 * Await what `function(params, req_p, info_p)` posts, which is a call of libumx; the
 * await of a receive gives its umx_recv_info. If `stop` is requested, in the
 * worker's thread, the operation is cancelled, and throws UMX_ERR_CANCELED.
 */
template <class Function> class post {
public:
    explicit post(Function function, std::stop_token stop = {})
        : function_(std::move(function)), stop_(std::move(stop)) {}
    ~post() {
        umx_status status = req_ ? umx_request_abandon(req_) : UMX_OK;
        for (waiter_ = {}; req_ && status == UMX_INPROGRESS;) {
            (void)umx_worker_poll(umx_request_worker(req_)); /* memory of a device */
        }
        if (req_) { *link_.release() = nullptr; }
    }
    bool await_ready() {
        if (req_) { throw std::logic_error("umx: the operation is in progress"); }
        link_ = std::make_unique<post *>(this);
        umx_op_params params = {UMX_OP_FIELD_ON_DONE, on_done, link_.get(), 0, nullptr, 0, 0};
        status_ = stop_.stop_requested() ? UMX_ERR_CANCELED : function_(&params, &req_, &info_);
        return status_ != UMX_INPROGRESS;
    }
    void await_suspend(std::coroutine_handle<> waiter) {
        waiter_ = waiter;
        on_stop_.emplace(stop_, [this] { (void)umx_request_cancel(req_); });
    }
    umx_recv_info await_resume() { check(status_); return info_; }

private:
    static void on_done(umx_request *req, umx_status status, void *arg) {
        post *self = *static_cast<post **>(arg);
        if (self == nullptr) { delete static_cast<post **>(arg); return; }
        self->on_stop_.reset();
        self->status_ = status;
        self->info_ = *umx_request_info(req);
        self->req_ = nullptr;
        if (self->waiter_) { self->waiter_.resume(); } /* the operation may go in this */
    }
    Function function_;
    std::stop_token stop_;
    std::optional<std::stop_callback<std::function<void()>>> on_stop_;
    std::coroutine_handle<> waiter_;
    umx_request *req_ = nullptr;
    std::unique_ptr<post *> link_; /* on_done's, if the operation goes before */
    umx_status status_ = UMX_OK;
    umx_recv_info info_ = {};
};

/** Something that happens once, and that one task awaits. */
struct event : private awaited {
    void set() { finish().resume(); }
    wait operator co_await() { return wait(*this); }
};

/** Make progress until `main` is done; return its result, or throw. */
template <class T> T run(umx_worker *worker, task<T> main) {
    for (main.start(); !main.done();) { check(umx_worker_wait(worker, UMX_TIMEOUT_INFINITE)); }
    return main.result();
}

} // namespace umx
#endif
