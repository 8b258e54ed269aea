#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::jinja {

class Context;
class Value;
struct Arguments;

using Values = std::vector<Value>;

/// A list or a tuple. It does not change once a template can see it.
struct List {
  Values items;
  bool tuple = false;
  int height = 1;  ///< of what holds values within each other, this one included
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
/// Found by a part of a text as well, without a copy of it.
template <class T>
using ByText = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

/// A dictionary in the order of insertion. It does not change once a template can see it.
class Dict {
 public:
  /// Null if there is none. A template's own keys spend by their size.
  const Value* find(Context& context, const Value& key) const;
  const Value* named(std::string_view key) const;
  /// Both replace the value of a key that is there. False if the key is of a kind that cannot be
  /// one, or the context has failed.
  bool set(Context& context, Value key, Value value);
  void set(std::string key, Value value);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int height() const { return height_; }
  /// What it takes to make such a one.
  std::size_t bytes() const { return items_.size() * 128 + key_bytes_; }

 private:
  void put(std::string name, Value key, Value value);

  std::vector<std::pair<Value, Value>> items_;
  ByText<std::size_t> places_;  // By what the keys are found by.
  std::size_t key_bytes_ = 0;
  int height_ = 1;
};

/// What namespace() makes: the only thing that a template can change.
struct Namespace {
  ByText<Value> attributes;
};

/// A macro, a method bound to its object, or a function of the environment.
struct Callable {
  std::string name;
  std::function<Value(Context&, Arguments&)> run;
  int height = 0;  ///< as List's, of a method's object
};

/// The variable `loop` of a turn of a loop.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
};

/// A value of the language, as cheap to copy as a pointer.
class Value {
 public:
  struct None {};
  /// A name or an attribute that is not there; `trouble` is what its use would be refused with.
  struct Undefined {
    std::shared_ptr<const std::string> trouble;
  };
  using Text = std::shared_ptr<const std::string>;
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                   std::shared_ptr<const Callable>, std::shared_ptr<const Loop>>;

  Value() = default;
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List list);
  Value(Values items) : Value(List{std::move(items)}) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  Value(Callable callable) : data_(std::make_shared<const Callable>(std::move(callable))) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}

  static Value undefined(std::string trouble);
  static Value tuple(Values items) { return Value(List{std::move(items), true}); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* text() const { return pointed<Text>(); }
  const List* list() const { return pointed<std::shared_ptr<const List>>(); }
  const Dict* dict() const { return pointed<std::shared_ptr<const Dict>>(); }
  Namespace* space() const { return pointed<std::shared_ptr<Namespace>>(); }
  const Callable* callable() const { return pointed<std::shared_ptr<const Callable>>(); }
  const Loop* loop() const { return pointed<std::shared_ptr<const Loop>>(); }
  std::shared_ptr<const List> shared_list() const;
  std::shared_ptr<const Callable> shared_callable() const;
  const Data& data() const { return data_; }

  /// See List::height; 0 for what holds nothing.
  int height() const;
  /// What use of an undefined value is refused with.
  std::string trouble() const;
  /// Python's name of the type: "str", "int", "NoneType".
  std::string_view type_name() const;

 private:
  template <class Pointer>
  typename Pointer::element_type* pointed() const {
    const auto* pointer = std::get_if<Pointer>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Data data_;
};

/// The arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

}  // namespace troupe::jinja
