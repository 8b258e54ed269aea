#pragma once

#include <cstdint>
#include <string>

#include "runtime/tensor_proof.h"

namespace troupe {

/// By what a client finds its request again: after its connection broke, or after the head was
/// started again. Immutable; drawn or read by the door that the request came through.
struct RequestName {
  std::string id = {};      ///< the door's own, told to the client; the same for all its prompts
  std::uint32_t index = 0;  ///< which of the prompts that came together
  std::uint32_t count = 1;  ///< how many these are
  std::uint64_t owner = 0;  ///< whose it is, such as a hash of the API key; others do not find it
  std::string key = {};     ///< the client's own (Idempotency-Key); empty: it has none
  Digest body = {};         ///< of all that was asked: a key belongs to one question
  std::string form = {};    ///< what the door needs to write the answer again
};

}  // namespace troupe
