#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/tensor_proof.h"

namespace troupe {

/// XXH3-64 of some bytes: the same everywhere, for noticing what changed by accident.
std::uint64_t xxh3_64(const void* data, std::size_t bytes, std::uint64_t seed = 0);

/// XXH3-128 of some bytes.
Digest xxh3_128(const void* data, std::size_t bytes);

/// XXH3-128 of bytes as they come; how they are cut makes no difference.
class Xxh3 {
 public:
  Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  ~Xxh3();

  void add(std::span<const std::byte> bytes);
  /// Of all bytes so far.
  Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
