#pragma once

#include <string_view>

#include "kernels/stream.h"

namespace troupe::kernels {

/// Spoils an op's answer by the last bit of its first value, if tests want it so.
inline void apply_fault(Stream& stream, std::string_view op, void* first) {
  if (stream.fault() == nullptr) return;
  const char* broken = stream.fault()->load(std::memory_order_relaxed);
  if (broken == nullptr || op != broken) return;
  const unsigned char spoiled = static_cast<unsigned char>(*stream.read(first, 1)) ^ 1u;
  stream.write(first, &spoiled, 1);
}

}  // namespace troupe::kernels
