#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/router/journal.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/generation.h"

namespace troupe {

/// What a reader that comes later hears of a request: an event a choice, with what the journal has
/// of it beyond the tokens that the reader has (`from`, by choice; others begin at 0). Of a
/// choice that has less than that, only its end. The first carries the prompt. None has
/// `request_done`. Null tokenizer: text stays empty.
std::vector<GenerationEvent> tell_again(const Journal& journal, std::uint64_t request,
                                        std::span<const std::uint32_t> from,
                                        const std::shared_ptr<const Tokenizer>& tokenizer);

/// Whether the journal has of every choice what the reader has already.
bool reaches(const Journal& journal, std::uint64_t request, std::span<const std::uint32_t> from);

}  // namespace troupe
