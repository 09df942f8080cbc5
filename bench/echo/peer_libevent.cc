// SPDX-License-Identifier: Apache-2.0
//
// libevent at its best: plain persistent read events with recv and send over one shared 64 KiB
// buffer, an evbuffer only for what the socket does not take. A bufferevent, even with
// evbuffer_add_buffer, reads at most 4 KiB at a time and asks FIONREAD first: about twice the CPU for
// small messages and five times for large ones.
#include "peer.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/listener.h>

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace {

char shared[bench::kReadSize];

struct Connection {
  event readable;
  event writable;
  evbuffer* rest = nullptr;
};

void drop(Connection* connection, evutil_socket_t fd) {
  event_del(&connection->readable);
  if (connection->rest != nullptr) {
    event_del(&connection->writable);
    evbuffer_free(connection->rest);
  }
  delete connection;
  evutil_closesocket(fd);
}

void onWritable(evutil_socket_t fd, short, void* data) {
  auto* connection = static_cast<Connection*>(data);
  if (evbuffer_write(connection->rest, fd) < 0 && errno != EAGAIN) return drop(connection, fd);
  if (evbuffer_get_length(connection->rest) > 0) return;
  event_del(&connection->writable);
  event_add(&connection->readable, nullptr);
}

/// Keeps the bytes and reads no more before they are gone.
void keep(Connection* connection, evutil_socket_t fd, const char* bytes, size_t size) {
  if (connection->rest == nullptr) {
    connection->rest = evbuffer_new();
    event_assign(&connection->writable, event_get_base(&connection->readable), fd,
                 EV_WRITE | EV_PERSIST, onWritable, connection);
  }
  evbuffer_add(connection->rest, bytes, size);
  event_del(&connection->readable);
  event_add(&connection->writable, nullptr);
}

void onReadable(evutil_socket_t fd, short, void* data) {
  auto* connection = static_cast<Connection*>(data);
  const ssize_t size = recv(fd, shared, sizeof shared, 0);
  if (size < 0 && errno == EAGAIN) return;
  if (size <= 0) return drop(connection, fd);
  const ssize_t sent = send(fd, shared, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent == size) return;
  if (sent < 0 && errno != EAGAIN) return drop(connection, fd);
  const ssize_t taken = std::max<ssize_t>(sent, 0);
  keep(connection, fd, shared + taken, static_cast<size_t>(size - taken));
}

void onAccept(evconnlistener* listener, evutil_socket_t fd, sockaddr*, int, void*) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto* connection = new Connection;
  event_assign(&connection->readable, evconnlistener_get_base(listener), fd, EV_READ | EV_PERSIST,
               onReadable, connection);
  event_add(&connection->readable, nullptr);
}

event_base* newBase() {
  event_config* config = event_config_new();
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
  event_base* base = event_base_new_with_config(config);
  event_config_free(config);
  return base;
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(bench::begin(argc, argv));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  event_base* base = newBase();
  evconnlistener* listener = evconnlistener_new_bind(
      base, onAccept, nullptr, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
      bench::kBacklog, generic, sizeof address);
  bench::need(listener != nullptr, "listen");
  socklen_t size = sizeof address;
  getsockname(evconnlistener_get_fd(listener), generic, &size);

  const event_callback_fn stop = [](evutil_socket_t, short, void* data) {
    event_base_loopbreak(static_cast<event_base*>(data));
  };
  event_add(evsignal_new(base, SIGTERM, stop, base), nullptr);
  bench::announce(ntohs(address.sin_port));
  event_base_dispatch(base);
}
