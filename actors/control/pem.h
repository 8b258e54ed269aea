#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "actors/control/credentials.h"
#include "runtime/result.h"

/// OpenSSL's objects, owned, and read from PEM text. For this folder, and the gateway's HTTPS.
namespace troupe::control {

template <auto free_function>
struct FreeWith {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};
using BioPtr = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeWith<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, FreeWith<SSL_free>>;

using RequestPtr = std::unique_ptr<X509_REQ, FreeWith<X509_REQ_free>>;

/// Null if the text is no certificate, or no private key without a passphrase.
CertificatePtr read_certificate(const std::string& pem);
KeyPtr read_key(const std::string& pem);
/// A certificate and those that lead from it to its CA, in the order of the text. Empty if one of
/// them is not readable.
std::vector<CertificatePtr> read_chain(const std::string& pem);

/// Null unless it is a request for a certificate, signed with the key that it is for.
RequestPtr read_request(const std::string& pem);

std::string write_certificate(X509* certificate);
std::string write_key(EVP_PKEY* key);
/// A request for a certificate for the key; empty if OpenSSL fails.
std::string write_request(EVP_PKEY* key);

/// SHA-256 of the DER form, 64 small hexadecimal digits.
std::string certificate_hash(X509* certificate);

/// Whether the three parts are readable and belong together.
Status check_credentials(const Credentials& credentials);

/// What OpenSSL's error queue says first, and clears it.
std::string take_openssl_error();

}  // namespace troupe::control
