/* SPDX-License-Identifier: BSD-3-Clause */
/* Who goes first: tasks, events and operations that end or are destroyed in each order. */
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <umx/coro.hpp>
#include <vector>

static long live; /* allocations of C++, of which UCX makes none */

void *operator new(size_t size) {
    void *memory = malloc(size);

    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    live++;
    return memory;
}
void operator delete(void *memory) noexcept {
    live -= memory != nullptr;
    free(memory);
}
void operator delete(void *memory, size_t) noexcept { operator delete(memory); }

#define EXPECT(cond)                                                                     \
    do {                                                                                 \
        if (!(cond)) {                                                                   \
            fprintf(stderr, "%s:%d: not so: %s\n", __func__, __LINE__, #cond);           \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

namespace {

constexpr const char *text = "a text that is too long to be kept without the heap";

template <class Function> bool is_refused(Function function) {
    try {
        function();
    } catch (const std::logic_error &) {
        return true;
    }
    return false;
}

umx::task<int> one(int value) { co_return value; }

umx::task<long> sum(int count) {
    long total = 0;

    for (int i = 0; i < count; i++) {
        total += co_await one(1);
    }
    co_return total;
}

/* It counts how often tasks went on, and how many frames are gone. */
struct witness {
    int resumed = 0, gone = 0;
};
struct frame {
    witness &seen;
    std::string kept = text;
    explicit frame(witness &w) : seen(w) {}
    frame(frame &&) = delete;
    ~frame() { seen.gone++; }
};

umx::task<int> wait_for(umx::event &event, witness &seen) {
    frame mine(seen);

    co_await event;
    seen.resumed++;
    co_return mine.kept == text ? 42 : 0;
}

umx::task<int> wait_for(umx::task<int> &other, witness &seen) {
    frame mine(seen);
    int value = co_await other;

    seen.resumed++;
    co_return mine.kept == text ? value : 0;
}

void a_loop_of_awaits_needs_no_stack() {
    auto task = sum(200000);

    task.start();
    EXPECT(task.done() && task.result() == 200000);
}

void a_loop_goes_on_after_a_wait() {
    umx::event event;
    witness seen;
    auto inner = wait_for(event, seen);
    auto outer = [](umx::task<int> &first) -> umx::task<long> {
        long total = co_await first;

        co_return total + co_await sum(200000);
    }(inner);

    outer.start();
    EXPECT(!outer.done());
    event.set();
    EXPECT(outer.result() == 200042);
}

void a_waiter_goes_before_its_event() {
    umx::event event;
    witness seen;

    {
        auto task = wait_for(event, seen);
        task.start();
    }
    EXPECT(seen.gone == 1);
    event.set();
    event.set();
    EXPECT(seen.resumed == 0);
    auto late = wait_for(event, seen);
    late.start();
    EXPECT(late.result() == 42);
}

void an_event_goes_before_its_waiter() {
    auto event = std::make_unique<umx::event>();
    witness seen;

    {
        auto task = wait_for(*event, seen);
        task.start();
        event.reset();
        EXPECT(!task.done() && seen.resumed == 0);
    }
    EXPECT(seen.gone == 1);
}

void a_waiter_goes_before_its_task() {
    umx::event event;
    witness seen, seen_waiter;
    auto task = wait_for(event, seen); /* whoever awaits it begins it */

    {
        auto waiter = wait_for(task, seen_waiter);
        waiter.start();
    }
    EXPECT(seen_waiter.gone == 1);
    auto next = wait_for(task, seen_waiter);
    next.start();
    event.set();
    EXPECT(task.done() && next.result() == 42 && seen_waiter.resumed == 1);
}

void a_task_goes_before_its_waiter() {
    umx::event event;
    witness seen, seen_waiter;

    {
        auto task = std::make_optional(wait_for(event, seen));
        auto waiter = wait_for(*task, seen_waiter);
        waiter.start();
        task.reset();
        event.set();
        EXPECT(seen.gone == 1 && !waiter.done() && seen_waiter.resumed == 0);
    }
    EXPECT(seen_waiter.gone == 1);
}

void a_task_moves_while_it_is_awaited() {
    umx::event event;
    witness seen, seen_waiter;
    auto task = wait_for(event, seen);
    auto waiter = wait_for(task, seen_waiter);

    waiter.start();
    auto moved = std::move(task);
    event.set();
    EXPECT(moved.done() && waiter.result() == 42);
}

void a_second_waiter_is_refused() {
    umx::event event;
    witness seen, seen_waiter;
    auto task = wait_for(event, seen);
    auto first = wait_for(task, seen_waiter), second = wait_for(task, seen_waiter);
    auto of_event = wait_for(event, seen_waiter);

    first.start();
    second.start();
    of_event.start();
    EXPECT(is_refused([&] { second.result(); }));
    EXPECT(is_refused([&] { of_event.result(); }));
    event.set();
    EXPECT(first.result() == 42);
}

void tasks_are_assigned_and_erased() {
    umx::event event;
    witness seen;
    std::vector<umx::task<int>> tasks;

    for (int i = 0; i < 3; i++) {
        tasks.push_back((i == 1) ? wait_for(event, seen) : one(i));
        tasks.back().start();
    }
    std::erase_if(tasks, [](auto &task) { return task.done(); });
    EXPECT(tasks.size() == 1 && seen.gone == 0);
    auto &self = tasks[0];
    tasks[0] = std::move(self);
    EXPECT(seen.gone == 0 && !self.done());
    self = one(5); /* what it was is destroyed */
    EXPECT(seen.gone == 1 && is_refused([&] { self.result(); }));
    self.start();
    EXPECT(self.result() == 5);
}

void a_task_that_was_moved_from_is_done() {
    auto task = one(1);
    auto moved = std::move(task);
    witness seen;
    auto waiter = wait_for(task, seen);

    EXPECT(task.done() && !moved.done());
    EXPECT(is_refused([&] { task.start(); }) && is_refused([&] { task.result(); }));
    waiter.start();
    EXPECT(is_refused([&] { waiter.result(); }));
}

umx::task<> receive_and_throw(umx_worker *worker, bool is_posted) {
    uint64_t value = 0;
    umx_buffer buf = umx_host_buffer(&value, sizeof(value));

    co_await umx::post([&](auto *params, auto **req_p, auto *info_p) -> umx_status {
        if (is_posted) {
            umx::check(umx_tag_recv(worker, nullptr, 7, UINT64_MAX, &buf, params, req_p,
                                    info_p));
        }
        throw std::runtime_error(text);
    });
}

void a_function_throws_inside_post(umx_worker *worker) {
    for (bool is_posted : {false, true}) {
        long before = live;

        try {
            umx::run(worker, receive_and_throw(worker, is_posted));
            EXPECT(!"it has thrown");
        } catch (const std::runtime_error &error) {
            EXPECT(error.what() == std::string(text));
        }
        while (umx_worker_poll(worker) != UMX_OK) { /* the cancelled one ends */
        }
        EXPECT(live == before);
    }
}

void an_operation_is_awaited_twice(umx_worker *worker) {
    uint64_t value = 0;
    umx_buffer buf = umx_host_buffer(&value, sizeof(value));
    std::stop_source stop;
    umx::post receive(
        [&](auto *params, auto **req_p, auto *info_p) {
            return umx_tag_recv(worker, nullptr, 7, UINT64_MAX, &buf, params, req_p, info_p);
        },
        stop.get_token());
    auto wait = [](auto &operation) -> umx::task<> { co_await operation; };
    auto first = wait(receive), second = wait(receive);

    first.start();
    second.start();
    EXPECT(is_refused([&] { second.result(); }));
    stop.request_stop();
    try {
        umx::run(worker, std::move(first));
        EXPECT(!"it has thrown");
    } catch (const umx::error &error) {
        EXPECT(error.status == UMX_ERR_CANCELED);
    }
}

} // namespace

int main() {
    umx_context *context = nullptr;
    umx_worker *worker = nullptr;
    long before = live;

    a_loop_of_awaits_needs_no_stack();
    a_loop_goes_on_after_a_wait();
    a_waiter_goes_before_its_event();
    an_event_goes_before_its_waiter();
    a_waiter_goes_before_its_task();
    a_task_goes_before_its_waiter();
    a_task_moves_while_it_is_awaited();
    a_second_waiter_is_refused();
    tasks_are_assigned_and_erased();
    a_task_that_was_moved_from_is_done();
    umx::check(umx_context_create(nullptr, &context, nullptr));
    umx::check(umx_worker_create(context, &worker));
    a_function_throws_inside_post(worker);
    an_operation_is_awaited_twice(worker);
    umx_worker_destroy(worker);
    umx_context_release(context);
    EXPECT(live == before);
    puts("each order is safe");
}
