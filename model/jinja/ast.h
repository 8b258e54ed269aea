#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace troupe::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// One argument where a function, filter or test is called.
struct Argument {
  enum class Kind : unsigned char { kPositional, kNamed, kSpreadList, kSpreadDict };
  Kind kind = Kind::kPositional;
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  enum class Kind : unsigned char {
    kConstant,     ///< value
    kName,         ///< text
    kTuple,        ///< parts
    kList,         ///< parts
    kDict,         ///< parts: key, value, key, ...
    kAttribute,    ///< parts[0].text
    kItem,         ///< parts[0][parts[1]]
    kSlice,        ///< parts[0][parts[1]:parts[2]:parts[3]], null where left out
    kCall,         ///< parts[0](arguments)
    kFilter,       ///< parts[0] | text(arguments); parts[0] is null in a filter block
    kTest,         ///< parts[0] is text(arguments)
    kNot,          ///< not parts[0]
    kUnary,        ///< operators[0] parts[0]
    kBinary,       ///< parts[0] operators[0] parts[1]
    kAnd,          ///< parts[0] and parts[1]
    kOr,           ///< the same with or
    kConcat,       ///< parts joined by ~
    kCompare,      ///< parts[0] operators[0] parts[1] operators[1] ...
    kConditional,  ///< parts[0] if parts[1] else parts[2], null if left out
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int height = 1;  ///< expressions within each other, this one included
  std::string text;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  std::vector<Argument> arguments;
};

/// What a `set` or a `for` gives values to.
struct Target {
  std::string name;
  std::string attribute;        ///< of a namespace, if not empty
  std::vector<Target> targets;  ///< of a tuple, if not empty
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  ///< null: undefined
};

struct Statement {
  enum class Kind : unsigned char {
    kData,      ///< text
    kOutput,    ///< {{ expression }}
    kSet,       ///< target = expression
    kSetBlock,  ///< target = body, through the filter `expression` if there is one
    kFor,       ///< for target in expression if condition: body, else: otherwise
    kIf,        ///< if expression: body, or the first elif that holds, else: otherwise
    kMacro,     ///< macro text(parameters): body
    kCall,      ///< the call `expression` with `caller`, a macro of parameters and body
    kFilter,    ///< body through the filters of expression
    kWith,      ///< parameters have their values in body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kData;
  int line = 0;
  std::string text;
  Target target;
  ExpressionPtr expression, condition;
  std::vector<Parameter> parameters;
  Block body, otherwise;
  Block elifs;              ///< each has an expression and a body
  bool uses_extra = false;  ///< of a macro: it names varargs or kwargs
};

}  // namespace troupe::jinja
