#include <algorithm>
#include <array>
#include <utility>

#include "model/jinja/context.h"
#include "model/jinja/parser.h"

namespace troupe::jinja {
namespace {

using Kind = Expression::Kind;

/// Operators from the loosest; `~` comes between the first and the second level.
constexpr std::array<std::array<std::string_view, 4>, 3> kLevels = {{
    {"+", "-", "", ""},
    {"*", "/", "//", "%"},
    {"**", "", "", ""},
}};

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<=", ">=", "<", ">"};

template <class... Parts>
std::vector<ExpressionPtr> list_of(Parts... parts) {
  std::vector<ExpressionPtr> all;
  (all.push_back(std::move(parts)), ...);
  return all;
}

}  // namespace

ExpressionPtr Parser::make(Expression::Kind kind, std::vector<ExpressionPtr> parts) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = now().line;
  node->parts = std::move(parts);
  return finished(std::move(node));
}

/// Notes how high the tree has grown: walking it must not overflow the stack.
ExpressionPtr Parser::finished(ExpressionPtr node) {
  for (const ExpressionPtr& part : node->parts)
    if (part) node->height = std::max(node->height, part->height + 1);
  for (const Argument& argument : node->arguments)
    if (argument.value) node->height = std::max(node->height, argument.value->height + 1);
  if (node->height > kSyntaxHeightMax) {
    fail("an expression is nested too deeply");
    return std::make_unique<Expression>();
  }
  return node;
}

ExpressionPtr Parser::conditional(bool may_have_if) {
  if (!enter()) return std::make_unique<Expression>();
  ExpressionPtr node = either();
  while (may_have_if && status_.ok() && take_name("if")) {
    ExpressionPtr condition = either();
    ExpressionPtr otherwise;
    if (take_name("else")) otherwise = conditional(true);
    node = make(Kind::kConditional,
                list_of(std::move(node), std::move(condition), std::move(otherwise)));
  }
  leave();
  return node;
}

/// One expression, or several with commas.
ExpressionPtr Parser::tuple(bool may_have_if, bool in_brackets) {
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (status_.ok()) {
    const bool end = now().kind == Token::Kind::kOutputEnd ||
                     now().kind == Token::Kind::kBlockEnd || now().is(")") ||
                     (!may_have_if && now().named("recursive"));
    if (end) break;
    parts.push_back(conditional(may_have_if));
    if (!take_sign(",")) break;
    is_tuple = true;
  }
  if (is_tuple || (parts.empty() && in_brackets)) return make(Kind::kTuple, std::move(parts));
  if (parts.empty()) {
    fail("an expression is missing before " + shown_token());
    return std::make_unique<Expression>();
  }
  return std::move(parts.front());
}

ExpressionPtr Parser::either() {
  ExpressionPtr node = both();
  while (status_.ok() && take_name("or")) node = make(Kind::kOr, list_of(std::move(node), both()));
  return node;
}

ExpressionPtr Parser::both() {
  ExpressionPtr node = negation();
  while (status_.ok() && take_name("and"))
    node = make(Kind::kAnd, list_of(std::move(node), negation()));
  return node;
}

ExpressionPtr Parser::negation() {
  if (!enter()) return std::make_unique<Expression>();
  ExpressionPtr node = take_name("not") ? make(Kind::kNot, list_of(negation())) : comparison();
  leave();
  return node;
}

ExpressionPtr Parser::comparison() {
  std::vector<ExpressionPtr> parts = list_of(binary(0));
  std::vector<std::string> operators;
  while (status_.ok()) {
    const bool sign =
        now().kind == Token::Kind::kSign &&
        std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end();
    if (sign || now().named("in")) {
      operators.push_back(take().text);
    } else if (now().named("not") && after().named("in")) {
      take();
      take();
      operators.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(binary(0));
  }
  if (operators.empty()) return std::move(parts.front());
  ExpressionPtr node = make(Kind::kCompare, std::move(parts));
  node->operators = std::move(operators);
  return node;
}

ExpressionPtr Parser::binary(std::size_t level) {
  const auto operand = [&] { return level == 0 ? concat() : level == 1 ? binary(2) : unary(true); };
  ExpressionPtr node = operand();
  const auto& signs = kLevels[level];
  while (status_.ok() && now().kind == Token::Kind::kSign && !now().text.empty() &&
         std::find(signs.begin(), signs.end(), now().text) != signs.end()) {
    const int line = now().line;
    std::string sign = take().text;
    node = make(Kind::kBinary, list_of(std::move(node), operand()));
    node->operators.push_back(std::move(sign));
    node->line = line;
  }
  return node;
}

ExpressionPtr Parser::concat() {
  std::vector<ExpressionPtr> parts = list_of(binary(1));
  while (status_.ok() && take_sign("~")) parts.push_back(binary(1));
  return parts.size() == 1 ? std::move(parts.front()) : make(Kind::kConcat, std::move(parts));
}

ExpressionPtr Parser::unary(bool with_filters) {
  if (!enter()) return std::make_unique<Expression>();
  ExpressionPtr node;
  if (now().is("-") || now().is("+")) {
    std::string sign = take().text;
    node = make(Kind::kUnary, list_of(unary(false)));
    node->operators.push_back(std::move(sign));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  if (with_filters) node = filters(std::move(node));
  leave();
  return node;
}

ExpressionPtr Parser::primary() {
  ExpressionPtr node = make(Kind::kConstant, {});
  switch (now().kind) {
    case Token::Kind::kName: {
      node->text = take().text;
      const std::string& name = node->text;
      if (name == "true" || name == "True")
        node->value = true;
      else if (name == "false" || name == "False")
        node->value = false;
      else if (name == "none" || name == "None")
        node->value = Value::None{};
      else
        node->kind = Kind::kName;
      return node;
    }
    case Token::Kind::kText:
      return literal_text();
    case Token::Kind::kNumber:
      node->value = take().value;
      return node;
    default:
      break;
  }
  if (take_sign("(")) {
    node = tuple(true, true);
    expect_sign(")");
    return node;
  }
  if (now().is("[")) return list();
  if (now().is("{")) return dict();
  fail("unexpected " + shown_token());
  return node;
}

/// Literals beside each other are one.
ExpressionPtr Parser::literal_text() {
  ExpressionPtr node = make(Kind::kConstant, {});
  std::string text;
  while (now().kind == Token::Kind::kText) text += take().text;
  node->value = std::move(text);
  return node;
}

ExpressionPtr Parser::list() {
  expect_sign("[");
  std::vector<ExpressionPtr> items;
  while (status_.ok() && !now().is("]")) {
    items.push_back(expression());
    if (!take_sign(",")) break;
  }
  expect_sign("]");
  return make(Kind::kList, std::move(items));
}

ExpressionPtr Parser::dict() {
  expect_sign("{");
  std::vector<ExpressionPtr> parts;
  while (status_.ok() && !now().is("}")) {
    parts.push_back(expression());
    expect_sign(":");
    parts.push_back(expression());
    if (!take_sign(",")) break;
  }
  expect_sign("}");
  return make(Kind::kDict, std::move(parts));
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  while (status_.ok()) {
    if (take_sign(".")) {
      node = attribute(std::move(node));
    } else if (take_sign("[")) {
      node = subscript(std::move(node));
    } else if (now().is("(")) {
      const int line = now().line;
      node = make(Kind::kCall, list_of(std::move(node)));
      node->arguments = arguments();
      node->line = line;
      node = finished(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr Parser::filters(ExpressionPtr node) {
  while (status_.ok()) {
    if (take_sign("|")) {
      node = filter(std::move(node));
    } else if (take_name("is")) {
      node = test(std::move(node));
    } else if (now().is("(")) {
      node = make(Kind::kCall, list_of(std::move(node)));
      node->arguments = arguments();
      node = finished(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

/// A filter's name and arguments; the `|` is behind us.
ExpressionPtr Parser::filter(ExpressionPtr node) {
  ExpressionPtr filtered = make(Kind::kFilter, list_of(std::move(node)));
  filtered->text = expect_name();
  if (now().is("(")) filtered->arguments = arguments();
  return finished(std::move(filtered));
}

ExpressionPtr Parser::test(ExpressionPtr node) {
  const bool negated = take_name("not");
  ExpressionPtr tested = make(Kind::kTest, list_of(std::move(node)));
  tested->text = expect_name();
  const Token& next = now();
  const bool value = next.kind == Token::Kind::kText || next.kind == Token::Kind::kNumber ||
                     next.is("[") || next.is("{") ||
                     (next.kind == Token::Kind::kName && next.text != "else" && next.text != "or" &&
                      next.text != "and");
  if (next.is("(")) {
    tested->arguments = arguments();
  } else if (value) {
    if (next.text == "is" && next.kind == Token::Kind::kName)
      fail("tests with is cannot be chained");
    tested->arguments.push_back({Argument::Kind::kPositional, {}, postfix(primary())});
  }
  tested = finished(std::move(tested));
  return negated ? make(Kind::kNot, list_of(std::move(tested))) : std::move(tested);
}

ExpressionPtr Parser::attribute(ExpressionPtr node) {
  if (now().kind == Token::Kind::kNumber) {
    ExpressionPtr index = make(Kind::kConstant, {});
    index->value = take().value;
    return make(Kind::kItem, list_of(std::move(node), std::move(index)));
  }
  ExpressionPtr found = make(Kind::kAttribute, list_of(std::move(node)));
  found->text = expect_name();
  return found;
}

/// [index] or [from:to:step]; the "[" is behind us.
ExpressionPtr Parser::subscript(ExpressionPtr node) {
  std::vector<ExpressionPtr> parts = list_of(std::move(node));
  bool slice = false;
  while (status_.ok() && parts.size() < 4) {
    const bool left_out = now().is(":") || now().is("]");
    parts.push_back(left_out ? nullptr : expression());
    if (!take_sign(":")) break;
    slice = true;
  }
  expect_sign("]");
  if (slice) {
    parts.resize(4);
    return make(Kind::kSlice, std::move(parts));
  }
  if (parts.size() < 2 || parts[1] == nullptr) fail("an index is missing");
  return make(Kind::kItem, std::move(parts));
}

std::vector<Argument> Parser::arguments() {
  expect_sign("(");
  std::vector<Argument> all;
  while (status_.ok() && !now().is(")")) {
    all.push_back(argument());
    const bool late = all.back().kind == Argument::Kind::kPositional && all.size() > 1 &&
                      all[all.size() - 2].kind != Argument::Kind::kPositional;
    if (late) fail("a positional argument comes after others");
    if (!take_sign(",")) break;
  }
  expect_sign(")");
  return all;
}

Argument Parser::argument() {
  if (take_sign("*")) return {Argument::Kind::kSpreadList, {}, expression()};
  if (take_sign("**")) return {Argument::Kind::kSpreadDict, {}, expression()};
  if (now().kind == Token::Kind::kName && after().is("=")) {
    std::string name = expect_name();
    expect_sign("=");
    return {Argument::Kind::kNamed, std::move(name), expression()};
  }
  return {Argument::Kind::kPositional, {}, expression()};
}

}  // namespace troupe::jinja
