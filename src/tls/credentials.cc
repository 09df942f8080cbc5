// SPDX-License-Identifier: Apache-2.0
#include "tls/credentials.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <utility>
#include <vector>

namespace millrace::tls {

namespace {

constexpr std::size_t kMostBytes = 1024 * 1024;

BioPtr bioOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string timeText(const ASN1_TIME* time) {
  tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return "?";
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return {text, size};
}

/// The PEM text of an identity or trust, and how to name it in an error. It may be a key: it does not stay in memory.
struct Source {
  Source(std::string called, std::string pem) : name(std::move(called)), text(std::move(pem)) {}
  Source(Source&&) = default;
  Source& operator=(Source&&) = delete;
  ~Source() { OPENSSL_cleanse(text.data(), text.size()); }

  std::string name;
  std::string text;
};

Result<Source> sourceOf(bool isFile, const std::string& value, const char* what) {
  if (!isFile) return Source{std::string("the ") + what + " in memory", value};
  if (value.empty()) return credentialsError(what, "needs a path, this one is empty");
  Result<std::string> text = readFile(value);
  if (!text) return text.error();
  return Source{std::string(what) + " " + value, std::move(*text)};
}

Result<std::vector<X509Ptr>> readCertificates(const Source& source) {
  std::vector<X509Ptr> found;
  const BioPtr bio = bioOf(source.text);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  const bool isEnd = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = takeReason();
  if (!isEnd) return credentialsError(source.name, "has a certificate that is damaged: " + reason);
  if (found.empty()) {
    return credentialsError(source.name,
                            "has no certificate (PEM is expected: -----BEGIN CERTIFICATE-----)");
  }
  return found;
}

Result<void> checkDates(X509* certificate, const std::string& name) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return credentialsError(
        name, "has expired: it was good until " + timeText(X509_get0_notAfter(certificate)));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return credentialsError(name,
                            "is not good before " + timeText(X509_get0_notBefore(certificate)));
  }
  return {};
}

struct PassPhrase {
  const std::string* text;
  bool wasAsked = false;
};

int givePassPhrase(char* into, int size, int, void* user) {
  auto& phrase = *static_cast<PassPhrase*>(user);
  phrase.wasAsked = true;
  if (phrase.text->empty() || phrase.text->size() > static_cast<std::size_t>(size)) return -1;
  std::memcpy(into, phrase.text->data(), phrase.text->size());
  return static_cast<int>(phrase.text->size());
}

Result<KeyPtr> readKey(const Source& source, const std::string& passPhrase) {
  PassPhrase phrase{&passPhrase};
  const BioPtr bio = bioOf(source.text);
  ERR_clear_error();
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &givePassPhrase, &phrase));
  if (key) return key;
  ERR_clear_error();  // its words would be "unsupported", whatever it is
  if (phrase.wasAsked && passPhrase.empty()) {
    return credentialsError(source.name, "is encrypted, and no pass phrase was given");
  }
  if (phrase.wasAsked)
    return credentialsError(source.name, "is encrypted with another pass phrase");
  if (source.text.find("PRIVATE KEY-----") == std::string::npos) {
    return credentialsError(source.name,
                            "has no private key (PEM is expected: -----BEGIN PRIVATE KEY-----)");
  }
  return credentialsError(source.name, "is damaged, or of a kind that OpenSSL does not know");
}

/// Of 4 or 16 bytes; nothing for others, which mean no address.
std::string addressText(const ASN1_OCTET_STRING* address) {
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(address) != 16) return {};
  char text[INET6_ADDRSTRLEN];
  const char* made = inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof text);
  return made == nullptr ? std::string() : made;
}

void addNames(X509* certificate, std::vector<std::string>& names) {
  auto* alternatives = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (alternatives == nullptr) return;
  for (int i = 0; i < sk_GENERAL_NAME_num(alternatives); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(alternatives, i);
    if (name->type == GEN_DNS) {
      names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                         static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName)));
    } else if (name->type == GEN_IPADD) {
      std::string text = addressText(name->d.iPAddress);
      if (!text.empty()) names.push_back(std::move(text));
    }
  }
  GENERAL_NAMES_free(alternatives);
}

std::string nameText(const X509_NAME* name) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

}  // namespace

Result<std::string> readFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return credentialsError(path, std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  text.resize(kMostBytes + 1);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::streamsize size = file.gcount();
  if (file.bad() || (size == 0 && errno != 0)) {
    return credentialsError(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  if (static_cast<std::size_t>(size) > kMostBytes) {
    return credentialsError(path, "is longer than 1 MiB: that is no certificate");
  }
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::string bytesOf(const X509* certificate) {
  unsigned char* made = nullptr;
  const int size = i2d_X509(certificate, &made);
  std::string bytes(reinterpret_cast<const char*>(made),
                    size < 0 ? 0 : static_cast<std::size_t>(size));
  OPENSSL_free(made);
  return bytes;
}

Result<void> useIdentity(SSL_CTX* ctx, const TlsIdentity& identity) {
  Result<Source> chainSource = sourceOf(identity.isFile(), identity.chain(), "certificate");
  if (!chainSource) return chainSource.error();
  Result<Source> keySource = sourceOf(identity.isFile(), identity.key(), "key");
  if (!keySource) return keySource.error();
  Result<std::vector<X509Ptr>> chain = readCertificates(*chainSource);
  if (!chain) return chain.error();
  Result<KeyPtr> key = readKey(*keySource, identity.passPhrase());
  if (!key) return key.error();
  if (Result<void> dates = checkDates(chain->front().get(), chainSource->name); !dates)
    return dates;

  ERR_clear_error();
  if (SSL_CTX_use_certificate(ctx, chain->front().get()) != 1) {
    return credentialsError(chainSource->name, "is refused: " + takeReason());
  }
  for (std::size_t i = 1; i < chain->size(); ++i) {
    if (SSL_CTX_add1_chain_cert(ctx, (*chain)[i].get()) != 1) {
      return credentialsError(chainSource->name,
                              "has a certificate in its chain that is refused: " + takeReason());
    }
  }
  if (X509_check_private_key(chain->front().get(), key->get()) != 1) {
    ERR_clear_error();
    return credentialsError(keySource->name, "does not belong to " + chainSource->name);
  }
  if (SSL_CTX_use_PrivateKey(ctx, key->get()) != 1) {
    return credentialsError(keySource->name, "is refused: " + takeReason());
  }
  return {};
}

Result<std::string> useTrust(SSL_CTX* ctx, const TlsTrust& trust, bool tellClients) {
  if (trust.kind() == TlsTrust::Kind::insecure) return std::string();
  if (trust.kind() == TlsTrust::Kind::system) {
    if (SSL_CTX_set_default_verify_paths(ctx) != 1) {
      return credentialsError("what the system trusts", "cannot be used: " + takeReason());
    }
    return std::string();
  }
  Result<Source> source = sourceOf(trust.kind() == TlsTrust::Kind::file, trust.source(), "trust");
  if (!source) return source.error();
  Result<std::vector<X509Ptr>> found = readCertificates(*source);
  if (!found) return found.error();
  X509_STORE* store = SSL_CTX_get_cert_store(ctx);
  for (const X509Ptr& each : *found) {
    if (X509_STORE_add_cert(store, each.get()) != 1) {
      return credentialsError(source->name, "has a certificate that is refused: " + takeReason());
    }
    if (tellClients) SSL_CTX_add_client_CA(ctx, each.get());
  }
  ERR_clear_error();
  return std::move(source->text);
}

TlsCertificate describe(X509* certificate) {
  TlsCertificate words;
  words.subject = nameText(X509_get_subject_name(certificate));
  words.issuer = nameText(X509_get_issuer_name(certificate));
  addNames(certificate, words.names);
  words.notBefore = timeText(X509_get0_notBefore(certificate));
  words.notAfter = timeText(X509_get0_notAfter(certificate));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest, &size) == 1) {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (unsigned int i = 0; i < size; ++i) {
      words.sha256 += kDigits[digest[i] >> 4];
      words.sha256 += kDigits[digest[i] & 15];
    }
  }
  const int length = i2d_X509(certificate, nullptr);
  if (length > 0) {
    words.der.resize(static_cast<std::size_t>(length));
    auto* at = reinterpret_cast<unsigned char*>(words.der.data());
    i2d_X509(certificate, &at);
  }
  return words;
}

}  // namespace millrace::tls
