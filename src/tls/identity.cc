// SPDX-License-Identifier: Apache-2.0
#include "tls/host_names.h"
#include "tls/openssl.h"

#include <millrace/tls/tls_identity.h>

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdexcept>

namespace millrace {

namespace {

using tls::BioPtr;

std::string textOf(const BioPtr& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

/// The longest that a subject may hold; who it is for stands elsewhere anyway.
constexpr std::size_t kLongestCommonName = 64;

void addExtension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* made = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (made == nullptr) {
    throw std::invalid_argument("TlsIdentity::selfSigned(): \"" + value +
                                "\": " + tls::takeReason());
  }
  X509_add_ext(certificate, made, -1);
  X509_EXTENSION_free(made);
}

}  // namespace

TlsIdentity::TlsIdentity(bool isFile, std::string chain, std::string key, std::string passPhrase)
    : isFile_(isFile),
      chain_(std::move(chain)),
      key_(std::move(key)),
      passPhrase_(std::move(passPhrase)) {}

TlsIdentity TlsIdentity::fromFiles(std::string chainFile, std::string keyFile,
                                   std::string passPhrase) {
  return {true, std::move(chainFile), std::move(keyFile), std::move(passPhrase)};
}

TlsIdentity TlsIdentity::fromPem(std::string chain, std::string key, std::string passPhrase) {
  return {false, std::move(chain), std::move(key), std::move(passPhrase)};
}

TlsIdentity TlsIdentity::selfSigned(const std::vector<std::string>& names) {
  if (names.empty()) throw std::invalid_argument("TlsIdentity::selfSigned() needs a name");
  std::string alternatives;
  for (const std::string& name : names) {
    if (!tls::isAddress(name) && !tls::normalPattern(name)) {
      throw std::invalid_argument("TlsIdentity::selfSigned(): \"" + name +
                                  "\" is no host name or address");
    }
    if (!alternatives.empty()) alternatives += ",";
    alternatives += (tls::isAddress(name) ? "IP:" : "DNS:") + name;
  }

  const tls::KeyPtr key(EVP_EC_gen("P-256"));
  const tls::X509Ptr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  std::uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1 | 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600L);  // clocks differ
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 365L * 24 * 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const std::string commonName = names.front().substr(0, kLongestCommonName);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(commonName.data()),
                             static_cast<int>(commonName.size()), -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  addExtension(certificate.get(), NID_subject_alt_name, alternatives);
  addExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  addExtension(certificate.get(), NID_ext_key_usage, "serverAuth,clientAuth");
  addExtension(certificate.get(), NID_subject_key_identifier, "hash");
  X509_sign(certificate.get(), key.get(), EVP_sha256());

  const BioPtr chain(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(chain.get(), certificate.get());
  const BioPtr secret(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return fromPem(textOf(chain), textOf(secret));
}

}  // namespace millrace
