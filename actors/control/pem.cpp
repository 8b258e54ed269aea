#include "actors/control/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>

namespace troupe::control {
namespace {

/// Keys with a passphrase are refused rather than asked for on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

BioPtr over(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(size));
}

}  // namespace

CertificatePtr read_certificate(const std::string& pem) {
  ERR_clear_error();
  const BioPtr bio = over(pem);
  CertificatePtr certificate(PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return certificate;
}

KeyPtr read_key(const std::string& pem) {
  ERR_clear_error();
  const BioPtr bio = over(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

std::vector<CertificatePtr> read_chain(const std::string& pem) {
  ERR_clear_error();
  const BioPtr bio = over(pem);
  std::vector<CertificatePtr> chain;
  while (CertificatePtr next{PEM_read_bio_X509_AUX(bio.get(), nullptr, no_passphrase, nullptr)})
    chain.push_back(std::move(next));
  // What ends a whole file is that nothing begins any more.
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) chain.clear();
  ERR_clear_error();
  return chain;
}

RequestPtr read_request(const std::string& pem) {
  ERR_clear_error();
  const BioPtr bio = over(pem);
  RequestPtr request(PEM_read_bio_X509_REQ(bio.get(), nullptr, no_passphrase, nullptr));
  EVP_PKEY* key = request ? X509_REQ_get0_pubkey(request.get()) : nullptr;
  // The one kind that our side asks with: others may take long to check.
  const bool good = key && EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_bits(key) == 256 &&
                    X509_REQ_verify(request.get(), key) == 1;
  ERR_clear_error();
  return good ? std::move(request) : nullptr;
}

std::string write_request(EVP_PKEY* key) {
  ERR_clear_error();
  const RequestPtr request(X509_REQ_new());
  const BioPtr bio(BIO_new(BIO_s_mem()));
  const bool good = request && X509_REQ_set_pubkey(request.get(), key) == 1 &&
                    X509_REQ_sign(request.get(), key, EVP_sha256()) > 0 &&
                    PEM_write_bio_X509_REQ(bio.get(), request.get()) == 1;
  ERR_clear_error();
  return good ? text_of(bio.get()) : std::string();
}

std::string write_certificate(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return text_of(bio.get());
}

std::string write_key(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return text_of(bio.get());
}

Status check_credentials(const Credentials& credentials) {
  const CertificatePtr ca = read_certificate(credentials.ca_certificate);
  if (!ca) return corrupt("the CA's certificate is not readable");
  const CertificatePtr certificate = read_certificate(credentials.certificate);
  if (!certificate) return corrupt("the certificate is not readable");
  const KeyPtr key = read_key(credentials.private_key);
  if (!key) return corrupt("the private key is not readable");
  ERR_clear_error();
  const bool matches = X509_check_private_key(certificate.get(), key.get()) == 1;
  const bool is_signed = X509_verify(certificate.get(), X509_get0_pubkey(ca.get())) == 1;
  ERR_clear_error();
  if (!matches) return corrupt("the private key does not belong to the certificate");
  if (!is_signed) return corrupt("the certificate was not signed by the CA");
  return {};
}

std::string take_openssl_error() {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  if (const char* reason = ERR_reason_error_string(code)) return reason;
  std::array<char, 160> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

}  // namespace troupe::control
