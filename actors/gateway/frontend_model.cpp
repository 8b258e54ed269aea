#include "actors/gateway/frontend_model.h"

namespace troupe {
namespace {

class FrontendModel : public GatewayModel {
 public:
  explicit FrontendModel(std::shared_ptr<const ModelFrontend> frontend)
      : frontend_(std::move(frontend)) {}

  std::string_view served_model_name() const override { return frontend_->served_model_name(); }
  std::uint32_t max_model_len() const override {
    return static_cast<std::uint32_t>(frontend_->max_model_len());
  }
  bool has_tokenizer() const override { return frontend_->tokenizer() != nullptr; }
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      bool add_special_tokens) const override {
    return frontend_->tokenize(text, add_special_tokens);
  }
  Result<std::vector<TokenId>> prompt_tokens(const GenerationRequest& request) const override {
    return frontend_->prompt_tokens(request);
  }
  Result<std::string> decode(std::span<const TokenId> ids) const override {
    return frontend_->detokenize(ids);
  }
  std::string_view token_bytes(TokenId id) const override {
    return frontend_->tokenizer() ? frontend_->tokenizer()->token_bytes(id) : std::string_view();
  }
  bool is_special(TokenId id) const override {
    return frontend_->tokenizer() && frontend_->tokenizer()->is_special(id);
  }
  ReasoningStyle reasoning_style() const override {
    return frontend_->chat_format().ok() ? frontend_->chat_format()->reasoning_style()
                                         : ReasoningStyle::kNone;
  }
  ReasoningStart reasoning(const GenerationRequest& request) const override {
    return frontend_->reasoning(request);
  }
  ToolStyle tool_style() const override {
    return frontend_->chat_format().ok() ? frontend_->chat_format()->tool_style()
                                         : ToolStyle::kNone;
  }
  std::optional<TokenId> added_token_id(std::string_view tag) const override {
    return frontend_->tokenizer() ? frontend_->tokenizer()->added_token_id(tag) : std::nullopt;
  }

 private:
  std::shared_ptr<const ModelFrontend> frontend_;
};

}  // namespace

std::unique_ptr<GatewayModel> make_gateway_model(std::shared_ptr<const ModelFrontend> frontend) {
  return std::make_unique<FrontendModel>(std::move(frontend));
}

}  // namespace troupe
