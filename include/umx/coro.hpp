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
 * operation; the memory is the caller's when the destructor returns.
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
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <variant>

namespace umx {

/** A failure of libumx. */
class error : public std::runtime_error {
public:
    const umx_status status;
    explicit error(umx_status s) : std::runtime_error(umx_status_string(s)), status(s) {}
};

/** Throw umx::error if `status` is a failure. */
inline void check(umx_status status) {
    if (status < 0) { throw error(status); }
}

/** What the promises of all tasks share: the result, and who waits for it. */
template <class Value> struct promise_base {
    std::variant<std::monostate, Value, std::exception_ptr> end;
    std::coroutine_handle<> waiter = std::noop_coroutine();

    struct resume_waiter : std::suspend_always {
        template <class P>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<P> self) noexcept {
            return self.promise().waiter;
        }
    };
    std::suspend_always initial_suspend() noexcept { return {}; }
    resume_waiter final_suspend() noexcept { return {}; }
    void unhandled_exception() { end.template emplace<2>(std::current_exception()); }
};

template <class T> struct promise : promise_base<T> {
    void return_value(T value) { this->end.template emplace<1>(std::move(value)); }
};
template <> struct promise<void> : promise_base<char> {
    void return_void() { end.emplace<1>(); }
};

/** A coroutine, which begins when it is awaited, or by start(). */
template <class T = void> class task {
public:
    struct promise_type : promise<T> {
        task get_return_object() { return task(handle::from_promise(*this)); }
    };
    using handle = std::coroutine_handle<promise_type>;

    task(task &&other) noexcept
        : self_(std::exchange(other.self_, {})), is_started_(other.is_started_) {}
    ~task() { if (self_) { self_.destroy(); } }

    /** Begin it; the call returns when it waits for something, or is done. */
    void start() {
        if (!std::exchange(is_started_, true)) { self_.resume(); }
    }
    bool done() const noexcept { return self_.done(); }
    /** What a task that is done has returned, or thrown. */
    T result() {
        auto &end = self_.promise().end;
        if (end.index() == 2) { std::rethrow_exception(std::get<2>(end)); }
        if constexpr (!std::is_void_v<T>) { return std::move(std::get<1>(end)); }
    }

    bool await_ready() const noexcept { return self_.done(); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) {
        self_.promise().waiter = waiter;
        if (std::exchange(is_started_, true)) { return std::noop_coroutine(); }
        return self_;
    }
    T await_resume() { return result(); }

private:
    explicit task(handle self) : self_(self) {}
    handle self_;
    bool is_started_ = false;
};

/** An operation, which is posted when it is awaited: umx::post() makes it. */
template <class Post> class operation {
    struct link { operation *self; }; /* lives until on_done; the operation may go before */
    struct cancel {
        operation *self;
        void operator()() const noexcept { (void)umx_request_cancel(self->req_); }
    };

public:
    operation(Post post, std::stop_token stop) : post_(std::move(post)), stop_(std::move(stop)) {}
    operation(operation &&) = delete;
    ~operation() {
        if (req_ != nullptr && umx_request_abandon(req_) == UMX_OK) {
            link_->self = nullptr;
        }
        for (waiter_ = {}; req_ != nullptr && link_->self != nullptr;) {
            (void)umx_worker_poll(umx_request_worker(req_)); /* memory of a device */
        }
    }

    bool await_ready() {
        umx_op_params params = {UMX_OP_FIELD_ON_DONE, on_done, new link{this}, 0, nullptr};
        link_ = static_cast<link *>(params.arg);
        status_ = stop_.stop_requested() ? UMX_ERR_CANCELED : post_(&params, &req_, &info_);
        if (status_ != UMX_INPROGRESS) { delete link_; }
        return status_ != UMX_INPROGRESS;
    }
    void await_suspend(std::coroutine_handle<> waiter) {
        waiter_ = waiter;
        on_stop_.emplace(stop_, cancel{this});
    }
    umx_recv_info await_resume() { check(status_); return info_; }

private:
    static void on_done(umx_request *req, umx_status status, void *arg) {
        operation *self = static_cast<link *>(arg)->self;
        delete static_cast<link *>(arg);
        if (self != nullptr) {
            self->on_stop_.reset();
            self->status_ = status;
            self->info_ = *umx_request_info(req);
            self->req_ = nullptr;
            if (self->waiter_) { self->waiter_.resume(); } /* the operation may go in this */
        }
    }
    Post post_;
    std::stop_token stop_;
    std::optional<std::stop_callback<cancel>> on_stop_;
    std::coroutine_handle<> waiter_;
    umx_request *req_ = nullptr;
    link *link_ = nullptr;
    umx_status status_ = UMX_OK;
    umx_recv_info info_ = {};
};

/**
 * Await what `post(params, req_p, info_p)` posts, which is a call of libumx; the
 * await of a receive gives its umx_recv_info. If `stop` is requested, in the
 * worker's thread, the operation is cancelled, and throws UMX_ERR_CANCELED.
 */
template <class Post> operation<Post> post(Post post, std::stop_token stop = {}) {
    return {std::move(post), std::move(stop)};
}

/** Something that happens once, and that one task awaits. */
class event {
    bool is_set_ = false;
    std::coroutine_handle<> waiter_ = std::noop_coroutine();

public:
    void set() {
        is_set_ = true;
        std::exchange(waiter_, std::noop_coroutine()).resume();
    }
    bool await_ready() const noexcept { return is_set_; }
    void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
    void await_resume() const noexcept {}
};

/** Make progress until `main` is done; return its result, or throw. */
template <class T> T run(umx_worker *worker, task<T> main) {
    for (main.start(); !main.done();) {
        check(umx_worker_wait(worker, UMX_TIMEOUT_INFINITE));
    }
    return main.result();
}

} // namespace umx
#endif
