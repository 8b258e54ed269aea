#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How a family of models cuts text into words, where the files give only its name.
struct PublishedPreTokenizer {
  std::vector<std::string_view> patterns;  ///< one Split (Isolated) each
  bool nfc = false;                        ///< text is brought to NFC first
  bool ignore_merges = false;
  bool add_bos = false;  ///< where the file does not say
};

/// By the name that GGUF files have in `tokenizer.ggml.pre` (llama.cpp, src/llama-vocab.cpp).
/// Patterns are those of the families' own tokenizer.json, or of tokenization_kimi.py.
std::optional<PublishedPreTokenizer> published_pre_tokenizer(std::string_view name);

/// The names, for errors.
std::string published_pre_tokenizer_names();

/// The pattern of ByteLevel, from GPT-2 (openai/gpt-2, src/encoder.py).
extern const std::string_view kGpt2Pattern;

}  // namespace troupe
