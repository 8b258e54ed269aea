#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/twin/injected_failure.h"
#include "runtime/result.h"

namespace troupe::cli {

/// Kernels whose answers become wrong.
struct Breakage {
  std::string op;                        ///< linear, expert_mlp or attention
  std::uint32_t after_s = 0;             ///< since the worker became a member; 0: from the start
  std::optional<std::uint32_t> round_s;  ///< in which all known answers are asked for
};

/// OP[:SECONDS[:ROUND]]; none: the text is empty. kInvalidArgument: it is no such text.
Result<std::optional<Breakage>> parse_breakage(const std::string& text);

/// WHAT[:AFTER]; kNone: the text is empty. kInvalidArgument: it is no such text.
Result<kernels::InjectedFailure> parse_injected_failure(const std::string& text);

}  // namespace troupe::cli
