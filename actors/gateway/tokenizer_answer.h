#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/answer_room.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/gateway_model.h"
#include "actors/gateway/json_writer.h"

namespace troupe {

/// What /tokenize and /detokenize answer: kept as tokens or as text, which the room counts, and
/// written as JSON in pieces.
class TokenizerAnswer {
 public:
  /// `room` must outlive it.
  TokenizerAnswer(AnswerRoom& room, const GatewayModel& model)
      : share_(room), room_(room), model_(model) {}

  // Either of these, once. Errors: 400 for what cannot be tokenised or would take more than one
  // answer may, 429 while others take the room.
  std::optional<ApiError> encode(const TokenizeRequest& request);
  std::optional<ApiError> decode(const DetokenizeRequest& request);

  /// Appends the next piece, about kHttpPieceBytes; true with the last.
  bool write_piece(std::string& out);

 private:
  std::optional<ApiError> take(const char* field, std::size_t bytes);
  bool write_tokens();
  bool write_text();

  RoomShare share_;
  AnswerRoom& room_;
  const GatewayModel& model_;
  JsonWriter json_;
  std::optional<std::vector<TokenId>> tokens_;  // Either,
  std::string text_;                            // or.
  std::size_t next_ = 0;                        // Of these, that is not written yet.
  bool strings_ = false, ids_done_ = false;     // Tokens come once more, as strings.
};

}  // namespace troupe
