// SPDX-License-Identifier: Apache-2.0
#include "tls/session.h"

#include "tls/credentials.h"
#include "tls/host_names.h"

#include <millrace/base/check.h>
#include <millrace/base/clock.h>
#include <millrace/channel/context.h>

#include <algorithm>
#include <cstring>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <utility>

namespace millrace::tls {

namespace {

/// Header, padding type, nonce or tag of any cipher that we allow.
constexpr std::size_t kRecordOverhead = 5 + 1 + 8 + 16;
/// Flights of a handshake.
constexpr std::size_t kHandshakeRoom = 4096;
/// The largest buffer that several records share.
constexpr std::size_t kLargestOutput = 128 * 1024;

int sessionIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

}  // namespace

const std::string* peerOf(const SSL* ssl) {
  const auto* session = static_cast<const Session*>(SSL_get_ex_data(ssl, sessionIndex()));
  return session == nullptr || session->peer().empty() ? nullptr : &session->peer();
}

/// What OpenSSL reads from and writes to.
struct Session::Bio {
  static Session& of(BIO* bio) { return *static_cast<Session*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* into, std::size_t size, std::size_t* got) {
    Session& session = of(bio);
    BIO_clear_retry_flags(bio);
    const std::size_t count = std::min(size, session.input_.readableBytes());
    if (count == 0 || session.isFlooded_) {
      session.isStarved_ = true;
      BIO_set_retry_read(bio);
      return -1;
    }
    session.input_.readBytes({reinterpret_cast<std::byte*>(into), count});
    if (!session.input_)
      session.input_ = ByteBuf();  // the block goes home now, not with the next read
    *got = count;
    return 1;
  }
  static int write(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
    BIO_clear_retry_flags(bio);
    of(bio).append(data, size);
    *written = size;
    return 1;
  }
  // Everything unknown is refused: a BIO that says yes to kernel TLS would send plaintext.
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
  static int create(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "millrace");
      MR_CHECK(fresh != nullptr, "OpenSSL makes no BIO");
      BIO_meth_set_read_ex(fresh, &read);
      BIO_meth_set_write_ex(fresh, &write);
      BIO_meth_set_ctrl(fresh, &control);
      BIO_meth_set_create(fresh, &create);
      return fresh;
    }();
    return made;
  }
};

Session::Session(SSL_CTX* ctx, bool isServer) : ssl_(SSL_new(ctx)) {
  MR_CHECK(ssl_ != nullptr, "OpenSSL has no memory for a connection");
  BIO* bio = BIO_new(Bio::method());
  MR_CHECK(bio != nullptr, "OpenSSL has no memory for a connection");
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_ex_data(ssl_.get(), sessionIndex(), this);
  SSL_set_msg_callback(ssl_.get(), &onMessage);
  SSL_set_msg_callback_arg(ssl_.get(), this);
  if (isServer) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

Session::~Session() {
  // A connection that just ends does not spoil the session for the next one.
  if (isHandshakeDone_) SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

void Session::setPeer(const std::string& host, std::uint16_t port, bool verifies) {
  peer_ = host + ":" + std::to_string(port);
  SSL_set_verify(ssl_.get(), SSL_get_verify_mode(ssl_.get()), &onVerify);
  X509_VERIFY_PARAM* param = SSL_get0_param(ssl_.get());
  if (isAddress(host)) {
    const bool good = !verifies || X509_VERIFY_PARAM_set1_ip_asc(param, host.c_str()) == 1;
    MR_CHECK(good, "OpenSSL does not take an address to verify");
    return;
  }
  std::optional<std::string> name = normalHostName(host);
  MR_CHECK(name.has_value(), "a TLS client without a host");
  SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name->data());
  serverName_ = std::move(*name);
  // Without this every certificate of a trusted authority would do, whomever it is for.
  const bool good =
      !verifies || X509_VERIFY_PARAM_set1_host(param, serverName_.c_str(), serverName_.size()) == 1;
  MR_CHECK(good, "OpenSSL does not take a name to verify");
}

// For the words of the error: afterwards OpenSSL does not know the certificate any more.
int Session::onVerify(int isGood, X509_STORE_CTX* store) {
  if (isGood == 1) return isGood;
  const auto* ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* session = static_cast<Session*>(SSL_get_ex_data(ssl, sessionIndex()));
  X509* shown = X509_STORE_CTX_get0_cert(store);
  if (session == nullptr || shown == nullptr) return isGood;
  std::string names;
  for (const std::string& name : describe(shown).names) names += " " + name;
  session->refused_ = printable(names);
  return isGood;
}

void Session::resume(const SslSessionPtr& session) {
  if (session) SSL_set_session(ssl_.get(), session.get());
}

void Session::keepBuffers(bool keeps) noexcept {
  if (keeps) {
    SSL_clear_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
    return;
  }
  SSL_set_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
  // OpenSSL before 3.0.14 also frees what holds a header, or plaintext that nobody has read yet (CVE-2024-4741).
  const bool isEmpty =
      SSL_has_pending(ssl_.get()) == 0 && std::strcmp(SSL_rstate_string(ssl_.get()), "RH") == 0;
  if (isEmpty) SSL_free_buffers(ssl_.get());  // else the mode does it later
}

bool Session::keepsBuffers() const noexcept {
  return (SSL_get_mode(ssl_.get()) & SSL_MODE_RELEASE_BUFFERS) == 0;
}

void Session::feed(ByteBuf&& ciphertext) {
  if (!input_) {
    input_ = std::move(ciphertext);
  } else {
    input_.writeBytes(ciphertext.data());
  }
}

void Session::append(const char* data, std::size_t size) {
  if (out_.writableBytes() < size) {
    if (out_) full_.push_back(std::exchange(out_, ByteBuf()));
    const std::size_t room = std::max(size, std::min(expected_, kLargestOutput));
    out_ = ctx_ != nullptr ? ctx_->allocate(room) : ByteBuf(room);
  }
  std::memcpy(out_.writable(size).data(), data, size);
  out_.advance(size);
  expected_ -= std::min(expected_, size);
}

// What others left in OpenSSL's queue of this thread must not be taken for ours. Looking at the queue before each
// call costs a thirtieth of a short message, so it is not asked: whether OpenSSL ran out of input, and what the
// peer's last alert was, we know ourselves.
Session::Step Session::stepOf(int result) {
  if (result == 1) return Step::done;
  if (isStarved_ && !isFlooded_) return Step::wantsInput;
  noteFailure();
  if (isFlooded_) {
    reason_ = "more new keys and tickets than it sends data for";
  } else if (lastAlert_ == SSL_AD_CLOSE_NOTIFY) {
    if (isHandshakeDone_) return Step::closed;
    reason_ = "the peer said close_notify in the handshake";
  }
  return Step::failed;
}

void Session::noteFailure() {
  reason_ = takeReason(&reasonNumber_);
  // "sslv3 alert bad certificate", "tlsv1 unrecognized name": old names of what the peer says.
  if (reasonNumber_ > SSL_AD_REASON_OFFSET) {
    const std::size_t alert = reason_.find(" alert ");
    const std::size_t words = alert == std::string::npos ? reason_.find(' ') + 1 : alert + 7;
    reason_ = "the peer says: " + reason_.substr(words);
  }
  if (reason_.empty()) reason_ = "OpenSSL does not say why";
}

Session::Step Session::handshake() {
  expected_ = kHandshakeRoom;
  isStarved_ = false;
  ERR_clear_error();
  const Step step = stepOf(SSL_do_handshake(ssl_.get()));
  if (step == Step::done) {
    isHandshakeDone_ = true;
    openSince_ = Clock::real().nanos();
  }
  return step;
}

// Notes alerts, and counts what a peer can make us do without sending any data.
void Session::onMessage(int isWritten, int, int contentType, const void* data, std::size_t size,
                        SSL*, void* self) {
  if (isWritten != 0) return;
  auto& session = *static_cast<Session*>(self);
  if (contentType == SSL3_RT_ALERT && size == 2) {
    session.lastAlert_ = static_cast<const std::uint8_t*>(data)[1];
  }
  if (contentType != SSL3_RT_HANDSHAKE || !session.isHandshakeDone_) return;
  ++session.messages_;
  const std::int64_t age = Clock::real().nanos() - session.openSince_;
  const std::uint64_t allowed = kFreeMessages + session.bytesRead_ / kBytesPerMessage +
                                static_cast<std::uint64_t>(age / kNanosPerMessage);
  if (session.messages_ > allowed) session.isFlooded_ = true;
}

Session::Step Session::read(ByteBuf& into) {
  expected_ = 0;
  isStarved_ = false;
  while (into.writableBytes() != 0) {
    const std::span<std::byte> room = into.writable();
    std::size_t got = 0;
    const int result = SSL_read_ex(ssl_.get(), room.data(), room.size(), &got);
    if (result != 1) return stepOf(result);
    into.advance(got);
    bytesRead_ += got;
    // To ask once more, only to hear that it wants input, is half the work of a short record.
    if (input_.readableBytes() == 0 && SSL_has_pending(ssl_.get()) == 0) return Step::wantsInput;
  }
  return Step::done;
}

Session::Step Session::write(std::span<const std::byte> plaintext, std::size_t more) {
  const std::size_t whole = plaintext.size() + more;
  expected_ = whole + (whole / kRecord + 1) * kRecordOverhead;
  while (!plaintext.empty()) {
    std::size_t written = 0;
    const int result = SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &written);
    if (result != 1) {
      noteFailure();
      return Step::failed;
    }
    plaintext = plaintext.subspan(written);
  }
  return Step::done;
}

bool Session::mayWrite() {
  if (SSL_in_init(ssl_.get()) == 0) return true;
  std::size_t none = 0;
  isStarved_ = false;
  return SSL_write_ex(ssl_.get(), "", 0, &none) == 1 || !isStarved_;
}

void Session::closeNotify() {
  expected_ = 0;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

Error Session::failure(const char* operation, const std::string& who) const {
  const long verdict = SSL_get_verify_result(ssl_.get());
  const std::string subject = who.empty() ? "" : who + ": ";
  if (reasonNumber_ == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    std::string text = subject + X509_verify_cert_error_string(verdict);
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
      text += " (its certificate is for" + (refused_.empty() ? " nobody" : refused_) + ")";
    }
    return {make_error_code(TlsErrc::certificate), operation, text};
  }
  if (reasonNumber_ == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return {make_error_code(TlsErrc::certificate), operation, subject + "the peer showed none"};
  }
  if (reasonNumber_ == SSL_R_HTTP_REQUEST || reasonNumber_ == SSL_R_WRONG_VERSION_NUMBER) {
    return {make_error_code(isHandshakeDone_ ? TlsErrc::protocol : TlsErrc::notTls), operation,
            subject + reason_};
  }
  return {make_error_code(isHandshakeDone_ ? TlsErrc::protocol : TlsErrc::handshake), operation,
          subject + reason_};
}

bool Session::isResumed() const noexcept { return SSL_session_reused(ssl_.get()) == 1; }

std::string Session::applicationProtocol() const {
  const unsigned char* chosen = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &chosen, &size);
  return {reinterpret_cast<const char*>(chosen), size};
}

TlsInfo Session::info() const {
  TlsInfo info;
  info.protocol = SSL_get_version(ssl_.get());
  info.cipher = SSL_get_cipher_name(ssl_.get());
  info.applicationProtocol = applicationProtocol();
  info.serverName = serverName_;
  info.resumed = isResumed();
  const X509Ptr own(SSL_get1_peer_certificate(ssl_.get()));
  if (!own) return info;
  info.peerCertificates.push_back(describe(own.get()));
  const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(ssl_.get());
  for (int i = 0; chain != nullptr && i < sk_X509_num(chain); ++i) {
    X509* each = sk_X509_value(chain, i);
    if (X509_cmp(each, own.get()) != 0) info.peerCertificates.push_back(describe(each));
  }
  return info;
}

}  // namespace millrace::tls
