/* SPDX-License-Identifier: BSD-3-Clause */
/* ./coro: coroutines of C++20 over libumx
 *
 * A client and a server in one thread, on one worker: messages, several tasks at
 * a time, a receive that is cancelled, and the error when the peer has closed.
 */
#include <arpa/inet.h>
#include <memory>
#include <netinet/in.h>
#include <stdio.h>
#include <string>
#include <sys/socket.h>
#include <umx/coro.hpp>
#include <vector>

namespace {

constexpr umx_match untagged = {0, 0, UMX_MATCH_UNTAGGED};
constexpr umx_match next_one = {0, 0, UMX_MATCH_ANY};

umx::task<> send(umx_ep *ep, std::string text) {
    umx_buffer buf = umx_host_buffer(text.data(), text.size());

    co_await umx::post([&](auto *params, auto **req_p, auto *) {
        return umx_channel_send(ep, 0, &untagged, &buf, params, req_p);
    });
}

umx::task<std::string> receive(umx_ep *ep, std::stop_token stop = {}) {
    std::string text(64, '\0');
    umx_buffer buf = umx_host_buffer(text.data(), text.size());
    umx_recv_info info = co_await umx::post(
        [&](auto *params, auto **req_p, auto *info_p) {
            return umx_channel_recv(ep, 0, &next_one, &buf, params, req_p, info_p);
        },
        stop);

    text.resize(info.length);
    co_return text;
}

umx::task<> close(umx_ep *ep) {
    co_await umx::post([&](auto *params, auto **req_p, auto *) {
        return umx_ep_close(ep, UMX_TIMEOUT_INFINITE, params, req_p);
    });
}

/* A listener, and the endpoint of the one client that it accepts. */
struct server {
    umx_listener *listener = nullptr;
    umx_ep *ep = nullptr;
    umx::event has_accepted;
    sockaddr_in address = {};

    explicit server(umx_worker *worker) {
        umx_listener_params params = {};
        size_t len = sizeof(address);

        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        params.addr = reinterpret_cast<const sockaddr *>(&address);
        params.addr_len = sizeof(address);
        params.on_accept = on_accept;
        params.arg = this;
        umx::check(umx_listener_create(worker, &params, &listener));
        umx::check(
            umx_listener_address(listener, reinterpret_cast<sockaddr *>(&address), &len));
    }
    server(const server &) = delete;
    ~server() {
        if (ep != nullptr) {
            umx_ep_destroy(ep);
        }
        umx_listener_destroy(listener);
    }

private:
    static void on_accept(umx_listener *, umx_ep *accepted, void *arg) {
        auto *self = static_cast<server *>(arg);

        self->ep = accepted;
        self->has_accepted.set();
    }
};

umx::task<> echo(server &self) {
    co_await self.has_accepted;
    try {
        for (;;) {
            co_await send(self.ep, co_await receive(self.ep));
        }
    } catch (const umx::error &error) {
        printf("server: %s\n", error.what());
    }
    co_await close(self.ep);
}

umx::task<std::string> ask(umx_ep *ep, std::string text) {
    co_await send(ep, text);
    co_return co_await receive(ep);
}

umx::task<> client(umx_ep *ep) {
    std::vector<umx::task<std::string>> asks;
    std::stop_source stop;
    umx::task<std::string> waiting = receive(ep, stop.get_token());

    waiting.start();
    stop.request_stop();
    try {
        co_await waiting;
    } catch (const umx::error &error) {
        printf("client: %s\n", error.what());
    }
    for (int i = 0; i < 3; i++) {
        asks.push_back(ask(ep, "message " + std::to_string(i)));
        asks.back().start();
    }
    for (auto &one : asks) {
        printf("client: %s\n", (co_await one).c_str());
    }
    {
        umx::task<std::string> dropped = receive(ep);

        dropped.start(); /* it is cancelled when it goes */
    }
    co_await close(ep);
}

umx::task<> both(umx_worker *worker) {
    server server(worker);
    umx_connect_params params = {};
    umx_ep *connected = nullptr;

    params.addr = reinterpret_cast<const sockaddr *>(&server.address);
    params.addr_len = sizeof(server.address);
    umx::check(umx_ep_connect(worker, &params, &connected));
    std::unique_ptr<umx_ep, decltype(&umx_ep_destroy)> ep(connected, umx_ep_destroy);
    umx::task<> serving = echo(server);
    serving.start();
    co_await client(ep.get());
    co_await serving;
}

} // namespace

int main() {
    umx_context *context = nullptr;
    umx_worker *worker = nullptr;
    int rc = 0;

    try {
        umx::check(umx_context_create(nullptr, &context, nullptr));
        umx::check(umx_worker_create(context, &worker));
        umx::run(worker, both(worker));
    } catch (const umx::error &error) {
        fprintf(stderr, "coro: %s\n", error.what());
        rc = 1;
    }
    if (worker != nullptr) {
        umx_worker_destroy(worker);
    }
    if (context != nullptr) {
        umx_context_release(context);
    }
    return rc;
}
