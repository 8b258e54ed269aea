#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer/code_point_set.h"

namespace troupe {

/// The code points of Unicode 16 by what patterns ask of them.
class UnicodeProperties {
 public:
  /// Made when first asked for: it takes some 10 ms.
  static const UnicodeProperties& all();

  /// A general category ("Lu"), a group of them ("L") or the script Han; nothing for other names.
  std::optional<CodePointSet> property(std::string_view name) const;
  /// White_Space, which Oniguruma calls \s.
  CodePointSet white_space() const;

 private:
  UnicodeProperties();
  struct Run {
    CodePointSet::Range range;
    std::string_view category;
  };
  std::vector<Run> runs_;  // in order, all of Unicode
};

}  // namespace troupe
