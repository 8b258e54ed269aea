#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "actors/router/stop_matcher.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/prepared_request.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// The text of one choice, token by token: whole characters, up to the first stop string behind
/// `min_tokens`. The same tokens give the same pieces of text, whoever feeds them.
class ChoiceText {
 public:
  ChoiceText() = default;
  /// Without a tokenizer all text is empty. `stops` are the request's.
  ChoiceText(std::shared_ptr<const Tokenizer> tokenizer, const PreparedRequest& request,
             std::shared_ptr<const StopStrings> stops);

  /// The text that may be given out with this token. One that ends the answer (`ends`) has none,
  /// unless the request wants to see what ended it.
  std::string feed(TokenId token, bool ends = false);
  /// What is left at the end; a stop string may still be found in it.
  std::string finish();
  bool stopped() const { return stops_ && stops_->matched(); }  ///< a stop string was found

 private:
  std::optional<StreamDecoder> decoder_;
  std::optional<StopMatcher> stops_;
  bool shows_end_ = false;
  std::uint32_t free_ = 0;  // Tokens that must come before a stop string counts: min_tokens.
};

}  // namespace troupe
