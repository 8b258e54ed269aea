#include "model/jinja/interpreter.h"

#include <utility>

#include "model/jinja/python.h"

namespace troupe::jinja {
namespace {

/// A turn of a loop has a scope, with its names.
constexpr std::uint64_t kStepsOfTurn = 2;
/// A scope that is kept.
constexpr std::uint64_t kScopeBytes = 512;

ScopePtr inner(const ScopePtr& scope) { return std::make_shared<Scope>(Scope{scope, {}}); }

}  // namespace

std::string Interpreter::run(const Block& block) {
  std::string out;
  execute(block, std::make_shared<Scope>(), out);
  return out;
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePtr& scope,
                                       std::string& out) {
  for (const Statement& statement : block) {
    if (context_.failed()) break;
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, const ScopePtr& scope,
                                       std::string& out) {
  if (!context_.spend(1)) return Flow::kNext;
  if (++depth_ > kDepthMax) context_.fail("it is nested too deeply");
  if (statement.line > 0) context_.at(statement.line);
  const Flow flow = context_.failed() ? Flow::kNext : execute_node(statement, scope, out);
  --depth_;
  return flow;
}

Interpreter::Flow Interpreter::execute_node(const Statement& statement, const ScopePtr& scope,
                                            std::string& out) {
  using Kind = Statement::Kind;
  switch (statement.kind) {
    case Kind::kData:
      if (context_.spend_bytes(statement.text.size())) out += statement.text;
      break;
    case Kind::kOutput:
      print(evaluate(*statement.expression, scope), out);
      break;
    case Kind::kSet:
      assign(statement.target, evaluate(*statement.expression, scope), scope);
      break;
    case Kind::kSetBlock:
      assign(statement.target,
             filtered(statement.expression.get(), captured(statement.body, inner(scope)), scope),
             scope);
      break;
    case Kind::kFor:
      return loop(statement, scope, out);
    case Kind::kIf:
      return execute(branch(statement, scope), scope, out);
    case Kind::kMacro:
      scope->names[statement.text] = macro(statement, statement.text, scope);
      break;
    case Kind::kCall:
      call_block(statement, scope, out);
      break;
    case Kind::kFilter:
      print(filtered(statement.expression.get(), captured(statement.body, inner(scope)), scope),
            out);
      break;
    case Kind::kWith: {
      const ScopePtr body = inner(scope);
      for (const Parameter& parameter : statement.parameters)
        body->names[parameter.name] = evaluate(*parameter.fallback, scope);
      return execute(statement.body, body, out);
    }
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

/// What of an `if` is executed.
const Block& Interpreter::branch(const Statement& statement, const ScopePtr& scope) {
  if (truthy(evaluate(*statement.expression, scope))) return statement.body;
  for (const Statement& elif : statement.elifs)
    if (truthy(evaluate(*elif.expression, scope))) return elif.body;
  return statement.otherwise;
}

void Interpreter::print(const Value& value, std::string& out) { out += shown(context_, value); }

/// What is looped over, without what the condition refuses.
std::shared_ptr<const List> Interpreter::loop_items(const Statement& statement,
                                                    const ScopePtr& scope) {
  const auto all = iterated(context_, evaluate(*statement.expression, scope));
  if (!statement.condition || context_.failed()) return all;
  Values chosen;
  for (const Value& item : all->items) {
    if (!context_.spend(kStepsOfTurn)) break;
    const ScopePtr turn = inner(scope);
    assign(statement.target, item, turn);
    if (truthy(evaluate(*statement.condition, turn))) chosen.push_back(item);
  }
  return Value(std::move(chosen)).shared_list();
}

Interpreter::Flow Interpreter::loop(const Statement& statement, const ScopePtr& scope,
                                    std::string& out) {
  const auto items = loop_items(statement, scope);
  if (context_.failed()) return Flow::kNext;
  if (items->items.empty()) return execute(statement.otherwise, scope, out);
  for (std::size_t i = 0; i < items->items.size() && context_.spend(kStepsOfTurn); ++i) {
    const ScopePtr turn = inner(scope);
    turn->names["loop"] = std::make_shared<const Loop>(Loop{items, i});
    assign(statement.target, items->items[i], turn);
    if (execute(statement.body, turn, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

std::string Interpreter::captured(const Block& block, const ScopePtr& scope) {
  std::string out;
  execute(block, scope, out);
  return out;
}

Value Interpreter::filtered(const Expression* filters, Value text, const ScopePtr& scope) {
  if (filters == nullptr) return text;
  filter_input_ = std::move(text);
  return evaluate(*filters, scope);
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (context_.failed()) return;
  if (!target.targets.empty()) {
    const auto parts = iterated(context_, value);
    if (!context_.failed() && parts->items.size() != target.targets.size()) {
      context_.fail(std::to_string(parts->items.size()) + " values for " +
                    std::to_string(target.targets.size()) + " names");
    }
    for (std::size_t i = 0; i < target.targets.size() && !context_.failed(); ++i)
      assign(target.targets[i], parts->items[i], scope);
  } else if (target.attribute.empty()) {
    scope->names[target.name] = value;
  } else {
    const Value holder = look_up(target.name, *scope);
    if (holder.space() == nullptr) {
      context_.fail("cannot assign attribute on non-namespace object '" + target.name + "'");
    } else {
      holder.space()->attributes[target.attribute] = value;
    }
  }
}

void Interpreter::call_block(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Value caller = macro(statement, "caller", scope);
  print(call(*statement.expression, scope, &caller), out);
}

Value Interpreter::macro(const Statement& statement, std::string_view name, const ScopePtr& scope) {
  if ((kept_.empty() || kept_.back() != scope) && context_.spend_bytes(kScopeBytes))
    kept_.push_back(scope);
  return Callable{std::string(name), [this, &statement, around = std::weak_ptr<Scope>(scope)](
                                         Context&, Arguments& arguments) {
                    return run_macro(statement, around.lock(), arguments);
                  }};
}

bool Interpreter::take_arguments(const Statement& statement, const ScopePtr& scope,
                                 Arguments& arguments) {
  const auto& parameters = statement.parameters;
  // Each name is looked for among the parameters.
  if (!context_.spend(parameters.size() + arguments.positional.size() +
                      arguments.named.size() * (1 + parameters.size() / 16)))
    return false;
  Values extra;
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < parameters.size())
      scope->names[parameters[i].name] = arguments.positional[i];
    else
      extra.push_back(arguments.positional[i]);
  }
  Dict extra_named;
  for (const auto& [name, value] : arguments.named) {
    const Parameter* known = nullptr;
    for (const Parameter& parameter : parameters)
      if (parameter.name == name) known = &parameter;
    if (known == nullptr && name == "caller")
      scope->names["caller"] = value;
    else if (known == nullptr)
      extra_named.set(name, value);
    else if (!scope->names.try_emplace(known->name, value).second)
      context_.fail("the macro got '" + name + "' twice");
  }
  const bool too_many = !extra.empty() || !extra_named.items().empty();
  if (too_many && !statement.uses_extra)
    context_.fail("the macro '" + statement.text + "' takes no such arguments");
  scope->names["varargs"] = context_.list(std::move(extra), true);
  scope->names["kwargs"] = context_.dict(std::move(extra_named));
  for (const Parameter& parameter : parameters) {
    if (context_.failed()) return false;
    if (scope->names.contains(parameter.name)) continue;
    Value fallback = parameter.fallback
                         ? evaluate(*parameter.fallback, scope)
                         : Value::undefined("parameter '" + parameter.name + "' was not provided");
    scope->names[parameter.name] = std::move(fallback);
  }
  return !context_.failed();
}

Value Interpreter::run_macro(const Statement& statement, const ScopePtr& around,
                             Arguments& arguments) {
  if (++macro_depth_ > kMacroDepthMax) context_.fail("macros call each other without end");
  const ScopePtr scope = inner(around);
  Value result;
  if (take_arguments(statement, scope, arguments)) result = captured(statement.body, scope);
  --macro_depth_;
  return result;
}

}  // namespace troupe::jinja
