#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace troupe::bench {

/// The first question of a conversation and how long its answer was.
struct Conversation {
  std::string question;
  std::uint64_t answer_tokens = 0;  ///< a token for 4 bytes
};

/// A list of {"conversations": [{"from", "value"}, ...]}: of each the first question, if an answer
/// follows and both have a usual length (vLLM's bounds: 4 to 1024 tokens, 2048 together). kCorrupt:
/// it is no such list, or nothing in it is of use.
Result<std::vector<Conversation>> parse_sharegpt(std::string_view text);

/// The same of a file; kNotFound: it cannot be read.
Result<std::vector<Conversation>> read_sharegpt(const std::string& path);

}  // namespace troupe::bench
