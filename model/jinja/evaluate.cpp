#include <utility>

#include "model/jinja/filters.h"
#include "model/jinja/globals.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/methods.h"
#include "model/jinja/operators.h"
#include "model/jinja/python.h"

namespace troupe::jinja {

Value Interpreter::evaluate(const Expression& node, const ScopePtr& scope) {
  if (!context_.spend(1)) return {};
  if (++depth_ > kDepthMax) context_.fail("it is nested too deeply");
  context_.at(node.line);
  Value value = context_.failed() ? Value() : evaluate_node(node, scope);
  --depth_;
  return value;
}

Value Interpreter::evaluate_node(const Expression& node, const ScopePtr& scope) {
  using Kind = Expression::Kind;
  switch (node.kind) {
    case Kind::kConstant:
      return node.value;
    case Kind::kName:
      return look_up(node.text, *scope);
    case Kind::kTuple:
    case Kind::kList:
      return list_of(node, scope);
    case Kind::kDict:
      return dict_of(node, scope);
    case Kind::kAttribute:
      return attribute(context_, part(node, 0, scope), node.text);
    case Kind::kItem: {
      const Value whole = part(node, 0, scope);
      return item(context_, whole, part(node, 1, scope));
    }
    case Kind::kSlice:
      return sliced(node, scope);
    case Kind::kCall:
      return call(node, scope, nullptr);
    case Kind::kFilter:
      return filter_result(node, scope);
    case Kind::kTest: {
      const Value value = part(node, 0, scope);
      Arguments arguments = arguments_of(node, scope);
      return apply_test(context_, node.text, value, arguments);
    }
    case Kind::kNot:
      return !truthy(part(node, 0, scope));
    case Kind::kUnary:
      return signed_value(context_, node.operators[0], part(node, 0, scope));
    case Kind::kBinary: {
      const Value left = part(node, 0, scope);
      const Value right = part(node, 1, scope);
      return context_.failed() ? Value() : operate(context_, node.operators[0], left, right);
    }
    case Kind::kAnd: {
      const Value left = part(node, 0, scope);
      return truthy(left) ? part(node, 1, scope) : left;
    }
    case Kind::kOr: {
      const Value left = part(node, 0, scope);
      return truthy(left) ? left : part(node, 1, scope);
    }
    case Kind::kConcat:
      return concatenated(node, scope);
    case Kind::kCompare:
      return compared(node, scope);
    case Kind::kConditional:
      if (truthy(part(node, 1, scope))) return part(node, 0, scope);
      if (node.parts[2]) return part(node, 2, scope);
      return Value::undefined("a condition was not met, and there is no else");
  }
  return {};
}

Value Interpreter::look_up(const std::string& name, const Scope& scope) const {
  int passed = 0;
  for (const Scope* s = &scope; s != nullptr; s = s->parent.get()) {
    const auto found = s->names.find(name);
    if (found != s->names.end()) return found->second;
    if (++passed % 4 == 0 && !context_.spend(1)) return {};
  }
  const Value* variable = variables_.named(name);
  return variable != nullptr ? *variable : global_function(name);
}

Value Interpreter::compared(const Expression& node, const ScopePtr& scope) {
  Value left = part(node, 0, scope);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    Value right = part(node, i + 1, scope);
    if (context_.failed() || !compare(context_, node.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::concatenated(const Expression& node, const ScopePtr& scope) {
  std::string text;
  for (std::size_t i = 0; i < node.parts.size() && !context_.failed(); ++i)
    text += shown(context_, part(node, i, scope));
  return Value(std::move(text));
}

Value Interpreter::list_of(const Expression& node, const ScopePtr& scope) {
  Values items;
  for (std::size_t i = 0; i < node.parts.size() && !context_.failed(); ++i)
    items.push_back(part(node, i, scope));
  return context_.list(std::move(items), node.kind == Expression::Kind::kTuple);
}

Value Interpreter::dict_of(const Expression& node, const ScopePtr& scope) {
  Dict dict;
  for (std::size_t i = 0; i + 1 < node.parts.size() && !context_.failed(); i += 2) {
    Value key = part(node, i, scope);
    const std::string type(key.type_name());
    if (!dict.set(context_, std::move(key), part(node, i + 1, scope)))
      return context_.fail("unhashable type: '" + type + "'");
  }
  return context_.dict(std::move(dict));
}

Value Interpreter::sliced(const Expression& node, const ScopePtr& scope) {
  const Value whole = part(node, 0, scope);
  const auto bound = [&](std::size_t i) {
    return node.parts[i] ? part(node, i, scope) : Value(Value::None{});
  };
  const Slice range{bound(1), bound(2), bound(3)};
  return context_.failed() ? Value() : slice(context_, whole, range);
}

Value Interpreter::filter_result(const Expression& node, const ScopePtr& scope) {
  const Value value = node.parts[0] ? part(node, 0, scope) : std::exchange(filter_input_, Value());
  Arguments arguments = arguments_of(node, scope);
  return context_.failed() ? Value() : apply_filter(context_, node.text, value, arguments);
}

/// `caller` is what a call block hands to the macro.
Value Interpreter::call(const Expression& node, const ScopePtr& scope, const Value* caller) {
  const Expression& callee = *node.parts[0];
  const bool method = callee.kind == Expression::Kind::kAttribute;
  const Value object = part(method ? callee : node, 0, scope);
  if (context_.failed()) return {};
  Arguments arguments = arguments_of(node, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  if (context_.failed()) return {};
  context_.at(node.line);
  if (method && !callee.text.starts_with('_') && has_method(object, callee.text))
    return call_method(context_, object, callee.text, arguments);
  const Value called = method ? attribute(context_, object, callee.text) : object;
  if (context_.failed()) return {};
  if (called.is_undefined()) return context_.fail(called.trouble());
  if (called.callable() == nullptr)
    return context_.fail("'" + std::string(called.type_name()) + "' object is not callable");
  if (++depth_ > kDepthMax) context_.fail("it is nested too deeply");
  Value result = context_.failed() ? Value() : called.callable()->run(context_, arguments);
  --depth_;
  return result;
}

Arguments Interpreter::arguments_of(const Expression& node, const ScopePtr& scope) {
  Arguments all;
  for (const Argument& argument : node.arguments) {
    const Value value = evaluate(*argument.value, scope);
    if (context_.failed()) break;
    if (argument.kind == Argument::Kind::kPositional) {
      all.positional.push_back(value);
    } else if (argument.kind == Argument::Kind::kNamed) {
      all.named.emplace_back(argument.name, value);
    } else if (argument.kind == Argument::Kind::kSpreadList) {
      const auto item_list = iterated(context_, value);
      const std::size_t count = item_list->items.size();
      if (!context_.spend(count / 8) || !context_.spend_bytes(count * sizeof(Value))) break;
      for (const Value& item : item_list->items) all.positional.push_back(item);
    } else if (value.dict() == nullptr) {
      context_.fail("'**' needs a mapping");
    } else if (context_.spend(value.dict()->items().size())) {
      for (const auto& [key, item] : value.dict()->items())
        all.named.emplace_back(shown(context_, key), item);
    }
    if (!context_.spend(1)) break;
  }
  return all;
}

}  // namespace troupe::jinja
