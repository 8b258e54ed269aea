#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe {

/// How a model wants a conversation written. The checkpoint's chat template is recognised by what
/// it contains, and rendered by code, byte for byte as the template would.
class ChatFormat {
 public:
  /// The family of the template.
  enum class Family : unsigned char {
    kDeepSeekV2,  ///< "User: ...\n\nAssistant: ...": V2, V2-Lite
    kDeepSeekV3,  ///< "<｜User｜>...<｜Assistant｜>...": V2.5, V3, V3-0324
    kDeepSeekR1,  ///< as V3, with a think block: R1, R1-0528
  };

  /// Recognises a template. `bos_token` and `eos_token` are the strings of tokenizer_config.json. A
  /// template that is not known is an error that names the supported ones.
  static Result<ChatFormat> detect(std::string_view chat_template, std::string bos_token,
                                   std::string eos_token);

  /// The same from a checkpoint folder: chat_template.jinja, else `chat_template` of
  /// tokenizer_config.json (a string, or a list of which "default" is taken). kNotFound if the
  /// checkpoint has none: it is a base model that cannot chat.
  static Result<ChatFormat> load(const std::filesystem::path& dir);

  /// The prompt's text, BOS included: encode it with add_special_tokens off. Roles that the format
  /// cannot carry are errors that name the message.
  Result<std::string> render(std::span<const ChatMessage> messages,
                             bool add_generation_prompt) const;

  Family family() const { return family_; }
  /// "deepseek-v2", "deepseek-v3" or "deepseek-r1".
  std::string_view name() const;
  /// Whether answers hold a think block, so that a ReasoningParser should read them.
  bool reasoning() const { return family_ == Family::kDeepSeekR1; }
  /// Whether the generation prompt has opened the think block already (see ReasoningParser).
  bool opens_think() const { return !think_opening_.empty(); }

 private:
  /// What a template does with the second and later system messages.
  enum class SystemMessages : unsigned char { kLast, kConcatenated, kBlankLineBetween, kInPlace };

  ChatFormat() = default;
  std::string render_v2(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  std::string render_v3(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

  Family family_ = Family::kDeepSeekV3;
  SystemMessages system_messages_ = SystemMessages::kLast;
  bool assistant_after_user_ =
      false;  // <｜Assistant｜> ends the user's turn instead of opening its own
  bool strips_thoughts_ = false;  // History keeps of an answer what follows its last </think>
  std::string think_opening_;     // What follows <｜Assistant｜> in the generation prompt
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace troupe
