// SPDX-License-Identifier: Apache-2.0
#include "tls/connection.h"
#include "tls/host_names.h"

#include <millrace/channel/channel.h>
#include <millrace/channel/channel_events.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/loop/event_loop.h>
#include <millrace/tls/tls_handler.h>

#include <stdexcept>
#include <utility>

namespace millrace {

TlsHandler::TlsHandler(const TlsContext& context)
    : connection_(std::make_shared<tls::Connection>(context, "", std::uint16_t{0})) {
  if (!context.isServer()) {
    throw std::invalid_argument(
        "TlsHandler: the context is for clients, and a client needs the name of its server: "
        "TlsHandler(context, \"example.org\")");
  }
}

TlsHandler::TlsHandler(const TlsContext& context, std::string host, std::uint16_t port)
    : connection_(std::make_shared<tls::Connection>(context, host, port)) {
  if (context.isServer()) {
    throw std::invalid_argument("TlsHandler: the context is for servers, which have no host");
  }
  if (!tls::isAddress(host) && !tls::normalHostName(host)) {
    throw std::invalid_argument("TlsHandler: \"" + host +
                                "\" is neither a host name nor an address; a server has to prove "
                                "that it is the one that is meant");
  }
}

TlsHandler::~TlsHandler() = default;

Future<void> TlsHandler::handshakeFuture() { return connection_->handshakeFuture(); }
bool TlsHandler::isHandshakeDone() const noexcept { return connection_->isHandshakeDone(); }
TlsInfo TlsHandler::info() const { return connection_->info(); }
std::string TlsHandler::applicationProtocol() const { return connection_->applicationProtocol(); }
void TlsHandler::closeOutbound() { connection_->endOutputLater(); }

void TlsHandler::handlerAdded(Context& ctx) {
  try {
    connection_->added(ctx);
  } catch (...) {
    // The pipeline goes on without a handler that throws here: those behind it would speak in the clear.
    ctx.channel().close();
    throw;
  }
}
void TlsHandler::handlerRemoved(Context&) { connection_->removed(); }

void TlsHandler::channelActive(Context& ctx) {
  connection_->active();
  ctx.fireChannelActive();
}

void TlsHandler::channelInactive(Context& ctx) {
  connection_->inactive();
  ctx.fireChannelInactive();
}

void TlsHandler::channelRead(Context& ctx, Message&& msg) {
  if (msg.is<ByteBuf>()) {
    connection_->read(msg.take<ByteBuf>());
  } else {
    ctx.fireChannelRead(std::move(msg));
  }
}

void TlsHandler::channelReadComplete(Context&) { connection_->readComplete(); }

void TlsHandler::userEventTriggered(Context& ctx, Message&& event) {
  // Later handlers may still have something to say before the end.
  if (event.is<ClosingGracefully>()) {
    ctx.fireUserEventTriggered(std::move(event));
    connection_->closingGracefully();
  } else if (event.is<EndingOutput>()) {
    ctx.fireUserEventTriggered(std::move(event));
    connection_->endOutput();
  } else if (!event.is<InputShutdown>() || !connection_->inputShutdown()) {
    ctx.fireUserEventTriggered(std::move(event));
  }
}

void TlsHandler::close(Context&, Promise<void>&& done) { connection_->close(std::move(done)); }
void TlsHandler::disconnect(Context&, Promise<void>&& done) { connection_->close(std::move(done)); }

void TlsHandler::write(Context&, Message&& msg, Promise<void>&& done) {
  if (!msg.is<ByteBuf>()) {
    done.tryFailure(
        Error(Errc::notSupported, "write",
              "TLS carries bytes only: an encoder is missing in the pipeline, and files "
              "have to be read first"));
    msg.reset();
    return;
  }
  connection_->write(msg.take<ByteBuf>(), std::move(done));
}

void TlsHandler::flush(Context&) { connection_->flush(); }

Future<TlsInfo> tlsHandshake(Channel& channel) {
  Promise<TlsInfo> promise(channel.loop());
  Future<TlsInfo> future = promise.future();
  auto ask = [alive = ChannelPtr(&channel), done = std::move(promise)]() mutable {
    auto* handler = alive->pipeline().get<TlsHandler>();
    if (handler == nullptr) {
      if (const std::shared_ptr<Error> why = alive->attributes().get(tls::kHandshakeFailure)) {
        done.tryFailure(*why);
      } else if (alive->isOpen()) {
        done.tryFailure(
            Error(Errc::notSupported, "tlsHandshake", alive->describe() + " has no TlsHandler"));
      } else {
        done.tryFailure(Error(Errc::closed, "tlsHandshake", alive->describe()));
      }
      return;
    }
    handler->handshakeFuture().addListener(
        [alive, promised = std::move(done)](const Result<void>& result) {
          const TlsHandler* now = result ? alive->pipeline().get<TlsHandler>() : nullptr;
          if (now != nullptr) {
            promised.trySuccess(now->info());
          } else {
            promised.tryFailure(result ? Error(Errc::closed, "tlsHandshake") : result.error());
          }
        });
  };
  if (channel.loop().inEventLoop()) {
    ask();
  } else {
    channel.loop().executeOwn(std::move(ask));  // if it is refused, the promise breaks
  }
  return future;
}

}  // namespace millrace
