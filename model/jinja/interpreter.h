#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/context.h"

namespace troupe::jinja {

/// Names and their values; those of the scopes around it show through.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string_view, Value> names;  // The syntax tree owns the keys.
};
using ScopePtr = std::shared_ptr<Scope>;

/// Walks a syntax tree once. What fails is kept in the context.
class Interpreter {
 public:
  Interpreter(Context& context, const Dict& variables) : context_(context), variables_(variables) {}

  std::string run(const Block& block);

 private:
  enum class Flow : unsigned char { kNext, kBreak, kContinue };

  // interpreter.cpp
  Flow execute(const Block& block, const ScopePtr& scope, std::string& out);
  Flow execute(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow execute_node(const Statement& statement, const ScopePtr& scope, std::string& out);
  const Block& branch(const Statement& statement, const ScopePtr& scope);
  Flow loop(const Statement& statement, const ScopePtr& scope, std::string& out);
  std::shared_ptr<const List> loop_items(const Statement& statement, const ScopePtr& scope);
  void call_block(const Statement& statement, const ScopePtr& scope, std::string& out);
  std::string captured(const Block& block, const ScopePtr& scope);
  Value filtered(const Expression* filters, Value text, const ScopePtr& scope);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  Value macro(const Statement& statement, std::string_view name, const ScopePtr& scope);
  Value run_macro(const Statement& statement, const ScopePtr& around, Arguments& arguments);
  bool take_arguments(const Statement& statement, const ScopePtr& scope, Arguments& arguments);
  void print(const Value& value, std::string& out);

  // evaluate.cpp
  Value evaluate(const Expression& node, const ScopePtr& scope);
  Value evaluate_node(const Expression& node, const ScopePtr& scope);
  Value part(const Expression& node, std::size_t i, const ScopePtr& scope) {
    return evaluate(*node.parts[i], scope);
  }
  Value look_up(const std::string& name, const Scope& scope) const;
  Value compared(const Expression& node, const ScopePtr& scope);
  Value concatenated(const Expression& node, const ScopePtr& scope);
  Value list_of(const Expression& node, const ScopePtr& scope);
  Value dict_of(const Expression& node, const ScopePtr& scope);
  Value sliced(const Expression& node, const ScopePtr& scope);
  Value filter_result(const Expression& node, const ScopePtr& scope);
  Value call(const Expression& node, const ScopePtr& scope, const Value* caller);
  Arguments arguments_of(const Expression& node, const ScopePtr& scope);

  Context& context_;
  const Dict& variables_;
  int depth_ = 0, macro_depth_ = 0;
  Value filter_input_;          // What a filter block has captured.
  std::vector<ScopePtr> kept_;  // Scopes that a macro will look into.
};

}  // namespace troupe::jinja
