#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace troupe {

using Sha256Digest = std::array<std::byte, 32>;

/// SHA-256 of bytes as they come: for what somebody could gain by forging. Use one again and again:
/// making it costs more than a short digest.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void add(std::span<const std::byte> bytes);
  /// Of all bytes since the last one.
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
