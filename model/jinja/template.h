#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "model/jinja/value.h"
#include "runtime/result.h"

namespace troupe::jinja {

/// A template that was read: the Jinja that chat templates on Hugging Face are written in. It is
/// immutable; every method is thread-safe.
class Template {
 public:
  /// kInvalidArgument says the line and what is wrong.
  static Result<Template> parse(std::string_view source);

  /// The text for these variables. kInvalidArgument: raise_exception's own words, or the line and
  /// what failed there. What a template may spend is bounded (context.h), whatever it says.
  Result<std::string> render(const Dict& variables, std::int64_t now_unix_s) const;

 private:
  struct Tree;
  explicit Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}

  std::shared_ptr<const Tree> tree_;
};

}  // namespace troupe::jinja
