// SPDX-License-Identifier: Apache-2.0
//
// libuv as its careful users write it: every connection reads into one shared 64 KiB buffer, and
// writes at once by uv_try_write; only what the socket does not take is copied and queued.
#include "peer.h"

#include <uv.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string>

namespace {

char shared[bench::kReadSize];

struct Rest {
  uv_write_t request{};
  std::string bytes;
};

template <class T>
uv_handle_t* handleOf(T* handle) {
  return reinterpret_cast<uv_handle_t*>(handle);
}

void closeConnection(uv_stream_t* stream) {
  uv_close(handleOf(stream), [](uv_handle_t* h) { delete reinterpret_cast<uv_tcp_t*>(h); });
}

void queueRest(uv_stream_t* stream, const char* bytes, size_t size) {
  auto* rest = new Rest{{}, std::string(bytes, size)};
  rest->request.data = rest;
  const uv_buf_t out = uv_buf_init(rest->bytes.data(), static_cast<unsigned>(size));
  uv_write(&rest->request, stream, &out, 1,
           [](uv_write_t* request, int) { delete static_cast<Rest*>(request->data); });
}

void onRead(uv_stream_t* stream, ssize_t size, const uv_buf_t* bytes) {
  if (size < 0) return closeConnection(stream);
  if (size == 0) return;
  const uv_buf_t out = uv_buf_init(bytes->base, static_cast<unsigned>(size));
  const int sent = uv_try_write(stream, &out, 1);
  if (sent == size) return;
  if (sent < 0 && sent != UV_EAGAIN) return closeConnection(stream);
  const int taken = std::max(sent, 0);
  queueRest(stream, bytes->base + taken, static_cast<size_t>(size - taken));
}

void onAlloc(uv_handle_t*, size_t, uv_buf_t* out) { *out = uv_buf_init(shared, sizeof shared); }

void onConnection(uv_stream_t* server, int status) {
  if (status < 0) return;
  auto* tcp = new uv_tcp_t;
  uv_tcp_init(server->loop, tcp);
  auto* stream = reinterpret_cast<uv_stream_t*>(tcp);
  if (uv_accept(server, stream) != 0) return closeConnection(stream);
  uv_tcp_nodelay(tcp, 1);
  uv_read_start(stream, onAlloc, onRead);
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address{};
  uv_ip4_addr("127.0.0.1", bench::begin(argc, argv), &address);
  uv_loop_t loop;
  uv_loop_init(&loop);
  uv_tcp_t server;
  uv_tcp_init(&loop, &server);
  uv_tcp_bind(&server, reinterpret_cast<sockaddr*>(&address), 0);
  bench::need(
      uv_listen(reinterpret_cast<uv_stream_t*>(&server), bench::kBacklog, onConnection) == 0,
      "uv_listen");
  int size = sizeof address;
  uv_tcp_getsockname(&server, reinterpret_cast<sockaddr*>(&address), &size);

  uv_signal_t term;
  uv_signal_init(&loop, &term);
  uv_signal_start(
      &term, [](uv_signal_t* signal, int) { uv_stop(signal->loop); }, SIGTERM);
  bench::announce(ntohs(address.sin_port));
  uv_run(&loop, UV_RUN_DEFAULT);
}
