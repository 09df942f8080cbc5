// SPDX-License-Identifier: Apache-2.0
//
// asio: an io_context of one thread, ssl::stream, async_read_some into the connection's own 16 KiB (a record
// at most comes at once), async_write: `bench_tls_asio port chain key`. One ticket per handshake, as ours.
#include "../echo/peer.h"

#include <asio.hpp>
#include <asio/ssl.hpp>

namespace {

using asio::ip::tcp;

class Connection {
 public:
  Connection(tcp::socket socket, asio::ssl::context& context)
      : stream_(std::move(socket), context) {
    stream_.next_layer().set_option(tcp::no_delay(true));
  }

  /// Frees itself when the connection ends.
  void begin() {
    stream_.async_handshake(asio::ssl::stream_base::server, [this](const asio::error_code& error) {
      if (error)
        delete this;
      else
        read();
    });
  }

 private:
  void read() {
    stream_.async_read_some(asio::buffer(bytes_),
                            [this](const asio::error_code& error, size_t size) {
                              if (error)
                                end();
                              else
                                echo(size);
                            });
  }

  void echo(size_t size) {
    asio::async_write(stream_, asio::buffer(bytes_, size),
                      [this](const asio::error_code& error, size_t) {
                        if (error)
                          delete this;
                        else
                          read();
                      });
  }

  void end() {
    stream_.async_shutdown([this](const asio::error_code&) { delete this; });
  }

  asio::ssl::stream<tcp::socket> stream_;
  char bytes_[16 * 1024];
};

void accept(tcp::acceptor& acceptor, asio::ssl::context& context) {
  acceptor.async_accept([&](const asio::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) (new Connection(std::move(socket), context))->begin();
    accept(acceptor, context);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const uint16_t port = bench::begin(argc, argv);
  if (argc != 4) return 2;
  asio::ssl::context context(asio::ssl::context::tls_server);
  context.use_certificate_chain_file(argv[2]);
  context.use_private_key_file(argv[3], asio::ssl::context::pem);
  SSL_CTX_set_num_tickets(context.native_handle(), 1);
  SSL_CTX_set_session_cache_mode(context.native_handle(), SSL_SESS_CACHE_OFF);

  asio::io_context io(1);
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.listen(bench::kBacklog);
  accept(acceptor, context);
  asio::signal_set signals(io, SIGTERM);
  signals.async_wait([&io](const asio::error_code&, int) { io.stop(); });
  bench::announce(acceptor.local_endpoint().port());
  io.run();
}
