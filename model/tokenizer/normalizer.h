#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// Unicode's normal forms (UAX #15), as of Unicode 9 like Hugging Face's.
enum class NormalForm : unsigned char { kNfc, kNfd, kNfkc, kNfkd };

/// Text in a normal form, in time O(n log n).
std::string to_normal_form(std::string_view text, NormalForm form);

/// Rewrites text before it is cut: the stages of `normalizer`, one after the other.
class Normalizer {
 public:
  struct Replace {
    std::string from;  ///< not empty
    std::string to;
  };
  /// Before every text that is not empty.
  struct Prepend {
    std::string text;
  };

  void add(NormalForm stage) { stages_.emplace_back(stage); }
  void add(Replace stage) { stages_.emplace_back(std::move(stage)); }
  void add(Prepend stage) { stages_.emplace_back(std::move(stage)); }

  std::size_t stages() const { return stages_.size(); }
  /// So many bytes of a text may become one; none if there is no bound.
  std::optional<std::size_t> shrink_max() const;
  /// `text` is UTF-8. kInvalidArgument: a stage makes more than `bytes_max` bytes of it.
  Result<std::string> apply(std::string_view text, std::size_t bytes_max) const;

 private:
  std::vector<std::variant<NormalForm, Replace, Prepend>> stages_;
};

}  // namespace troupe
