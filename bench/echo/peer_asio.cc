// SPDX-License-Identifier: Apache-2.0
//
// asio: an io_context of one thread, async_read_some into the connection's own 64 KiB, async_write.
// The buffer is the price of its interface: a pending read owns one. Tried and left out: waiting for
// readiness and reading into a shared buffer (an epoll_ctl more per message), and write_some at once
// (half the instructions, but its next read then finds nothing: a system call more per message).
#include "peer.h"

#include <asio.hpp>

namespace {

using asio::ip::tcp;

class Connection {
 public:
  explicit Connection(tcp::socket socket) : socket_(std::move(socket)) {
    socket_.set_option(tcp::no_delay(true));
  }

  /// Frees itself when the connection ends.
  void read() {
    socket_.async_read_some(asio::buffer(bytes_),
                            [this](const asio::error_code& error, size_t size) {
                              if (error)
                                delete this;
                              else
                                echo(size);
                            });
  }

 private:
  void echo(size_t size) {
    asio::async_write(socket_, asio::buffer(bytes_, size),
                      [this](const asio::error_code& error, size_t) {
                        if (error)
                          delete this;
                        else
                          read();
                      });
  }

  tcp::socket socket_;
  char bytes_[bench::kReadSize];
};

void accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([&acceptor](const asio::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) (new Connection(std::move(socket)))->read();
    accept(acceptor);
  });
}

}  // namespace

int main(int argc, char** argv) {
  asio::io_context io(1);
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), bench::begin(argc, argv));
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.listen(bench::kBacklog);
  accept(acceptor);
  asio::signal_set signals(io, SIGTERM);
  signals.async_wait([&io](const asio::error_code&, int) { io.stop(); });
  bench::announce(acceptor.local_endpoint().port());
  io.run();
}
