// SPDX-License-Identifier: Apache-2.0
// A certificate authority for tests: leaves with chosen names, dates and usages, and authorities below it.
//
//   const TestCertificate leaf = testRoot().issue({.names = "DNS:localhost"});
//   TlsContextBuilder::forServer(leaf.identity()) ... TlsTrust::fromPem(testRoot().pem())
//
// Only OpenSSL is in here, and what TlsIdentity needs: fuzz targets use it, too.
#pragma once

#include "tls/openssl.h"

#include <millrace/base/check.h>
#include <millrace/tls/tls_identity.h>

#include <cstdint>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::test {

inline std::string contentOf(const tls::BioPtr& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}
inline std::string pemOf(X509* certificate) {
  const tls::BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return contentOf(bio);
}
inline std::string pemOf(EVP_PKEY* key, const std::string& passPhrase = {}) {
  const tls::BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(bio.get(), key, passPhrase.empty() ? nullptr : EVP_aes_256_cbc(),
                                passPhrase.empty() ? nullptr : passPhrase.data(),
                                static_cast<int>(passPhrase.size()), nullptr, nullptr);
  return contentOf(bio);
}

/// What a certificate says. Values are in OpenSSL's notation; an empty one: not there.
struct TestWords {
  std::string commonName = "test";
  std::string names = {};                     ///< "DNS:example.org,IP:::1"
  std::vector<std::string> rawNames = {};     ///< further DNS names, byte for byte
  std::string notBefore = "20200101000000Z";  ///< Z: UTC
  std::string notAfter = "21200101000000Z";
  std::string usage = "serverAuth,clientAuth";  ///< extended key usage
  std::string basic = "critical,CA:FALSE";      ///< basic constraints
  std::string constraints = {};                 ///< name constraints: "permitted;DNS:example.org"
  unsigned rsaBits = 0;                         ///< 0: ECDSA on P-256
};

/// A certificate, its key, and the authorities between it and the root.
struct TestCertificate {
  std::string pem;    ///< its own certificate only
  std::string above;  ///< those that signed it, without the root
  tls::KeyPtr key;

  std::string chain() const { return pem + above; }
  std::string keyPem() const { return pemOf(key.get()); }
  TlsIdentity identity() const { return TlsIdentity::fromPem(chain(), keyPem()); }
};

class TestAuthority {
 public:
  /// Signs itself.
  explicit TestAuthority(const std::string& name) : TestAuthority(wordsOf(name, {}), nullptr) {}
  /// Is signed by `parent`. `constraints` as in TestWords.
  TestAuthority(const TestAuthority& parent, const std::string& name,
                const std::string& constraints = {})
      : TestAuthority(wordsOf(name, constraints), &parent) {}
  TestAuthority(const TestAuthority& parent, const TestWords& words)
      : TestAuthority(words, &parent) {}

  std::string pem() const { return pemOf(certificate_.get()); }

  TestCertificate issue(const TestWords& words) const {
    TestCertificate made;
    made.key = makeKey(words);
    const tls::X509Ptr certificate = sign(words, made.key.get(), certificate_.get(), key_.get());
    made.pem = pemOf(certificate.get());
    made.above = above_;
    return made;
  }

 private:
  static TestWords wordsOf(const std::string& name, const std::string& constraints) {
    TestWords words;
    words.commonName = name;
    words.usage.clear();
    words.basic = "critical,CA:TRUE";
    words.constraints = constraints;
    return words;
  }

  TestAuthority(const TestWords& words, const TestAuthority* parent)
      : key_(makeKey(words)),
        certificate_(sign(words, key_.get(), parent ? parent->certificate_.get() : nullptr,
                          parent ? parent->key_.get() : key_.get())) {
    if (parent != nullptr) above_ = pem() + parent->above_;
  }

  static tls::KeyPtr makeKey(const TestWords& words) {
    tls::KeyPtr key(words.rsaBits == 0 ? EVP_EC_gen("P-256")
                                       : EVP_RSA_gen(static_cast<std::size_t>(words.rsaBits)));
    MR_CHECK(key != nullptr, "the test authority gets no key");
    return key;
  }

  static void add(X509* certificate, X509* issuer, int kind, const std::string& value) {
    if (value.empty()) return;
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* made = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    MR_CHECK(made != nullptr, "the test authority does not know how to say this");
    X509_add_ext(certificate, made, -1);
    X509_EXTENSION_free(made);
  }

  // OpenSSL's notation ends at a NUL; these names do not.
  static void addRawNames(X509* certificate, const std::vector<std::string>& names) {
    if (names.empty()) return;
    GENERAL_NAMES* all = GENERAL_NAMES_new();
    for (const std::string& each : names) {
      ASN1_IA5STRING* text = ASN1_IA5STRING_new();
      ASN1_STRING_set(text, each.data(), static_cast<int>(each.size()));
      GENERAL_NAME* name = GENERAL_NAME_new();
      GENERAL_NAME_set0_value(name, GEN_DNS, text);
      sk_GENERAL_NAME_push(all, name);
    }
    X509_add1_ext_i2d(certificate, NID_subject_alt_name, all, 0, X509V3_ADD_APPEND);
    GENERAL_NAMES_free(all);
  }

  static tls::X509Ptr sign(const TestWords& words, EVP_PKEY* key, X509* issuer,
                           EVP_PKEY* issuerKey) {
    static std::uint64_t serial = 0;
    tls::X509Ptr certificate(X509_new());
    X509* raw = certificate.get();
    X509_set_version(raw, X509_VERSION_3);
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(raw), ++serial);
    ASN1_TIME_set_string_X509(X509_getm_notBefore(raw), words.notBefore.c_str());
    ASN1_TIME_set_string_X509(X509_getm_notAfter(raw), words.notAfter.c_str());
    X509_set_pubkey(raw, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(raw), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(words.commonName.data()),
                               static_cast<int>(words.commonName.size()), -1, 0);
    X509* signer = issuer == nullptr ? raw : issuer;
    X509_set_issuer_name(raw, X509_get_subject_name(signer));
    add(raw, signer, NID_basic_constraints, words.basic);
    add(raw, signer, NID_ext_key_usage, words.usage);
    add(raw, signer, NID_subject_alt_name, words.names);
    add(raw, signer, NID_name_constraints, words.constraints);
    add(raw, signer, NID_subject_key_identifier, "hash");
    addRawNames(raw, words.rawNames);
    MR_CHECK(X509_sign(raw, issuerKey, EVP_sha256()) != 0, "the test authority cannot sign");
    return certificate;
  }

  tls::KeyPtr key_;
  tls::X509Ptr certificate_;
  std::string above_;  // this one and those above, without the root
};

/// Made once per process: keys take their time.
inline const TestAuthority& testRoot() {
  static const TestAuthority made("root");
  return made;
}

}  // namespace millrace::test
