// SPDX-License-Identifier: Apache-2.0
// TlsIdentity: who we are, a certificate chain with its private key. TlsTrust: whom we believe.
//
//   TlsIdentity::fromFiles("chain.pem", "key.pem")        // read when the context is built, and by reload()
//   TlsIdentity::selfSigned({"localhost"})                // for tests and first steps
//
// Both are values that only say where to look: nothing is read before TlsContextBuilder::build(), which
// names the file if something is wrong with it. PEM only; a chain begins with our own certificate.
#pragma once

#include <millrace/base/export.h>

#include <string>
#include <vector>

namespace millrace {

/// See the top of this file.
class MILLRACE_API TlsIdentity {
 public:
  /// `passPhrase` is for a key that is encrypted.
  static TlsIdentity fromFiles(std::string chainFile, std::string keyFile,
                               std::string passPhrase = {});
  /// The texts themselves.
  static TlsIdentity fromPem(std::string chain, std::string key, std::string passPhrase = {});
  /// Made up now, good for a year, for these names and addresses: an ECDSA key on P-256. Clients trust it
  /// by TlsTrust::fromPem(identity.chain()).
  static TlsIdentity selfSigned(const std::vector<std::string>& names);

  bool isFile() const noexcept { return isFile_; }
  /// A path, or the PEM text.
  const std::string& chain() const noexcept { return chain_; }
  const std::string& key() const noexcept { return key_; }
  const std::string& passPhrase() const noexcept { return passPhrase_; }

 private:
  TlsIdentity(bool isFile, std::string chain, std::string key, std::string passPhrase);

  bool isFile_;
  std::string chain_;
  std::string key_;
  std::string passPhrase_;
};

/// See the top of this file.
class MILLRACE_API TlsTrust {
 public:
  enum class Kind { system, file, pem, insecure };

  /// The authorities that the system trusts: what clients do unless they are told otherwise.
  static TlsTrust system() { return {Kind::system, {}}; }
  /// The certificates of a PEM file, and no others. Each is trusted as it stands, also one of an intermediate
  /// authority or of a single server.
  static TlsTrust fromFile(std::string path) { return {Kind::file, std::move(path)}; }
  static TlsTrust fromPem(std::string text) { return {Kind::pem, std::move(text)}; }
  /// Clients: anybody is believed. The connection is encrypted, but nobody knows with whom.
  static TlsTrust insecure() { return {Kind::insecure, {}}; }

  Kind kind() const noexcept { return kind_; }
  /// A path, or the PEM text.
  const std::string& source() const noexcept { return source_; }

 private:
  TlsTrust(Kind kind, std::string source) : kind_(kind), source_(std::move(source)) {}

  Kind kind_;
  std::string source_;
};

}  // namespace millrace
