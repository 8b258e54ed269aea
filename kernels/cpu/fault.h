#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "kernels/context.h"

namespace troupe::kernels {

/// Spoils an op's answer by the last bit of its first value, if tests want it so.
inline void apply_fault(const Context& ctx, std::string_view op, float* first) {
  if (ctx.fault == nullptr) return;
  const char* broken = ctx.fault->load(std::memory_order_relaxed);
  if (broken == nullptr || op != broken) return;
  *first = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*first) ^ 1u);
}

}  // namespace troupe::kernels
