#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// Names of modules that a list in config.json means. Its patterns are foreign text: bounded in
/// number, size, and in what a match may cost.
class NamePatterns {
 public:
  enum class Syntax {
    kExactOrRegex,  ///< "lm_head", or "re:" and a pattern that fits from the start of the name
    kPart,          ///< "mlp.gate": such parts of the name, between dots, follow each other
    kPrefix,        ///< the name's first parts; "*" stands for anything
  };
  static Result<NamePatterns> compile(const std::vector<std::string>& list, Syntax syntax);
  ~NamePatterns();
  NamePatterns(NamePatterns&&) noexcept;
  NamePatterns& operator=(NamePatterns&&) noexcept;

  /// Fails when a pattern takes too long.
  Result<bool> match(const std::string& name) const;

 private:
  NamePatterns();
  struct Compiled;
  std::set<std::string> exact_;
  std::vector<std::string> parts_;
  std::vector<Compiled> patterns_;
};

}  // namespace troupe
