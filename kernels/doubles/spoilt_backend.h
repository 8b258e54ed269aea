#pragma once

#include <functional>
#include <string_view>

#include "kernels/backend.h"

namespace troupe::kernels {

/// A back-end as on a core that is broken: whenever it is to, what linear, expert_mlp or attention
/// answers has a wrong last bit in its first value. Streams name it as their back-end.
struct SpoiltBackend : Backend {
  /// Whether an answer of that op is spoilt. Any thread.
  using Spoils = std::function<bool(std::string_view op)>;

  SpoiltBackend(const Backend& of, Spoils spoils);
  SpoiltBackend(const SpoiltBackend&) = delete;
  SpoiltBackend& operator=(const SpoiltBackend&) = delete;

  const Backend whole;
  const Spoils spoils;
};

}  // namespace troupe::kernels
