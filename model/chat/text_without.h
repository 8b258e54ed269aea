#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// An expression (model/grammar/README.md) for the texts in which none of these tags stands. A tag
/// begins with "<", has no other, and no tag is the beginning of another one.
std::string text_without(std::span<const std::string_view> tags);

}  // namespace troupe
