#include <cstring>

#include "tests/fuzz/seeds.h"

namespace troupe::fuzz {
namespace {

template <class T>
std::string bytes(T value) {
  std::string text(sizeof value, '\0');
  std::memcpy(text.data(), &value, sizeof value);
  return text;
}

std::string text(const std::string& value) {
  return bytes(static_cast<std::uint64_t>(value.size())) + value;
}

std::string number(const std::string& key, std::uint32_t value) {
  return text(key) + bytes(4u) + bytes(value);
}

/// Two axes, rows last.
std::string tensor(const std::string& name, std::uint64_t columns, std::uint64_t rows,
                   std::uint32_t type, std::uint64_t offset) {
  return text(name) + bytes(2u) + bytes(columns) + bytes(rows) + bytes(type) + bytes(offset);
}

}  // namespace

std::vector<std::string> made_seeds() {
  std::string file = "GGUF" + bytes(3u) + bytes(std::uint64_t{2}) + bytes(std::uint64_t{13});
  file += text("general.architecture") + bytes(8u) + text("llama");
  file += number("llama.block_count", 1) + number("llama.context_length", 64);
  file += number("llama.embedding_length", 32) + number("llama.feed_forward_length", 32);
  file += number("llama.attention.head_count", 2);
  file += text("llama.rope.freq_base") + bytes(6u) + bytes(1e4f);
  file += text("tokenizer.ggml.model") + bytes(8u) + text("gpt2");
  file += text("tokenizer.ggml.pre") + bytes(8u) + text("llama-bpe");
  file += number("tokenizer.ggml.bos_token_id", 1);
  file += text("tokenizer.chat_template") + bytes(8u) + text("{{ bos_token }}");
  file += text("tokenizer.ggml.tokens") + bytes(9u) + bytes(8u) + bytes(std::uint64_t{2}) +
          text("a") + text("b");
  file += text("scores") + bytes(9u) + bytes(6u) + bytes(std::uint64_t{1}) + bytes(0.5f);
  file += tensor("token_embd.weight", 32, 2, 8, 0) + tensor("output.weight", 32, 1, 2, 96);
  file.resize((file.size() + 31) / 32 * 32 + 96 + 18);
  return {file, "GGUF" + bytes(2u) + std::string(16, '\0')};
}

}  // namespace troupe::fuzz
