#pragma once

#include <string>
#include <string_view>

namespace troupe::transport {

/// Whether `text` is UTF-8: shortest forms only, no surrogates, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text);

/// `text` with every byte that breaks UTF-8 replaced by '?', cut to `bytes_max` at a character.
std::string repair_utf8(std::string_view text, std::size_t bytes_max);

}  // namespace troupe::transport
