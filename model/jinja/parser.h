#pragma once

#include <string_view>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/lexer.h"
#include "runtime/result.h"

namespace troupe::jinja {

/// Reads tokens into a syntax tree, as Jinja's own parser does. The first error is kept; what is
/// returned after it is harmless.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<Block> run();

 private:
  // parse_statement.cpp
  Block block(std::initializer_list<std::string_view> ends);
  Statement statement();
  Statement set();
  Statement for_loop();
  Statement if_else();
  Statement macro();
  Statement call();
  Statement filter_block();
  Statement with();
  Statement loop_control();
  Statement generation();
  Target target(bool may_be_attribute);
  Target target_part(bool may_be_attribute);
  void parameters(std::vector<Parameter>& out);
  void block_end(std::string_view what);

  // parse_expression.cpp
  ExpressionPtr expression() { return conditional(true); }
  ExpressionPtr conditional(bool may_have_if);
  ExpressionPtr tuple(bool may_have_if, bool in_brackets);
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr binary(std::size_t level);
  ExpressionPtr concat();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr literal_text();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters(ExpressionPtr node);
  ExpressionPtr filter(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr attribute(ExpressionPtr node);
  std::vector<Argument> arguments();
  Argument argument();
  ExpressionPtr make(Expression::Kind kind, std::vector<ExpressionPtr> parts);
  ExpressionPtr finished(ExpressionPtr node);

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool take_sign(std::string_view sign);
  bool take_name(std::string_view name);
  void expect_sign(std::string_view sign);
  std::string expect_name();
  void fail(const std::string& what);
  std::string shown_token() const;
  bool enter();
  void leave() { --depth_; }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  ///< that break and continue could mean
  Status status_;
};

}  // namespace troupe::jinja
