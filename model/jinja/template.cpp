#include "model/jinja/template.h"

#include "model/jinja/interpreter.h"
#include "model/jinja/json.h"
#include "model/jinja/parser.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {

struct Template::Tree {
  Block block;
};

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kTemplateBytesMax) {
    return invalid_argument("the chat template has " + std::to_string(source.size()) + " bytes, " +
                            std::to_string(kTemplateBytesMax) + " may be");
  }
  if (!utf8::valid(source)) return invalid_argument("the chat template is not UTF-8");
  auto tokens = tokenize(source);
  if (!tokens) return tokens.error();
  auto block = Parser(std::move(*tokens)).run();
  if (!block) return block.error();
  return Template(std::make_shared<const Tree>(Tree{std::move(*block)}));
}

Result<std::string> Template::render(const Dict& variables, std::int64_t now_unix_s) const {
  ValueSize size;
  for (const auto& [name, value] : variables.items()) {
    const ValueSize more = size_of(value);
    size.values += more.values;
    size.bytes += more.bytes;
  }
  Context context({.steps = kStepsMax + kStepsPerValue * size.values + size.bytes,
                   .bytes = kBytesMax + kBytesPerByte * size.bytes,
                   .now_unix_s = now_unix_s});
  std::string text = Interpreter(context, variables).run(tree_->block);
  if (context.failed()) return context.status().error();
  return text;
}

}  // namespace troupe::jinja
