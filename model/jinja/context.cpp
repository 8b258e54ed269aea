#include "model/jinja/context.h"

namespace troupe::jinja {

Context::~Context() {
  for (const auto& space : spaces_) space->attributes.clear();
}

Value Context::fail(const std::string& what) {
  if (!failed()) {
    status_ =
        invalid_argument("the chat template failed at line " + std::to_string(line_) + ": " + what);
  }
  return {};
}

Value Context::raise(std::string words) {
  if (!failed()) status_ = invalid_argument(std::move(words));
  return {};
}

bool Context::spend(std::uint64_t steps) {
  if (failed()) return false;
  if (steps > left_.steps) {
    fail("it takes too many steps; a template that ends needs fewer");
    return false;
  }
  left_.steps -= steps;
  return true;
}

bool Context::spend_bytes(std::uint64_t bytes) {
  if (failed()) return false;
  if (bytes > left_.bytes) {
    fail("it makes too much text or too long lists");
    return false;
  }
  left_.bytes -= bytes;
  return true;
}

Value Context::text(std::string text) {
  if (!spend_bytes(text.size())) return {};
  return Value(std::move(text));
}

Value Context::list(Values items, bool tuple) {
  if (!spend(items.size()) || !spend_bytes(items.size() * sizeof(Value))) return {};
  Value value(List{std::move(items), tuple});
  if (value.height() > kValueHeightMax) return fail("lists are nested too deeply");
  return value;
}

Value Context::dict(Dict dict) {
  if (!spend(dict.items().size()) || !spend_bytes(dict.bytes())) return {};
  if (dict.height() > kValueHeightMax) return fail("dictionaries are nested too deeply");
  return Value(std::move(dict));
}

Value Context::space(std::shared_ptr<Namespace> space) {
  if (!spend(1 + space->attributes.size()) || !spend_bytes(256)) return {};
  spaces_.push_back(space);
  return space;
}

}  // namespace troupe::jinja
