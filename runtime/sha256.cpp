#include "runtime/sha256.h"

#include <openssl/evp.h>

#include <new>

namespace troupe {

struct Sha256::State {
  State() : method(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context(EVP_MD_CTX_new()) {
    if (!method || !context || EVP_DigestInit_ex2(context, method, nullptr) != 1)
      std::__throw_bad_alloc();
  }
  ~State() {
    EVP_MD_CTX_free(context);
    EVP_MD_free(method);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  EVP_MD* method;
  EVP_MD_CTX* context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  EVP_DigestInit_ex2(state_->context, nullptr, nullptr);
  return digest;
}

}  // namespace troupe
