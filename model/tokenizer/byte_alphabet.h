#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// GPT-2's alphabet of byte-level BPE: every byte is written as one printable character, so that
/// tokens are text. Bytes that are printable in Latin-1 stand for themselves, the others follow
/// from U+0100 on (openai/gpt-2, src/encoder.py, bytes_to_unicode).
char32_t byte_to_char(unsigned char byte);

/// The bytes that a token's text stands for; nothing if it has a character outside of the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace troupe
