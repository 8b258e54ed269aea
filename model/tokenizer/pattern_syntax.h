#pragma once

#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// Rewrites a pattern of tokenizer.json, which Hugging Face reads with Oniguruma (Ruby syntax,
/// Unicode 16), into one that means the same to PCRE2 (UTF, UCP, newline LF). The two differ in \s,
/// \w, \h, \v, ^, $, {,n}, in what `(?i)` reaches and in their Unicode version; every shorthand and
/// property is spelled out here. What has no counterpart is an error that names it.
Result<std::string> to_pcre2_syntax(std::string_view pattern);

/// The content of a PCRE2 class with the word characters of Rust's regex crate, which decides on
/// `single_word` of added tokens.
std::string rust_word_class();

}  // namespace troupe
