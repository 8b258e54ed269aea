#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

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

  bool empty() const { return stages_.empty(); }
  /// `text` is UTF-8.
  std::string apply(std::string_view text) const;

 private:
  std::vector<std::variant<NormalForm, Replace, Prepend>> stages_;
};

}  // namespace troupe
