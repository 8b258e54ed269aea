#include <nlohmann/json.hpp>

#include "model/jinja/json.h"
#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe::jinja {
namespace {

using Json = nlohmann::json;

/// Builds the value from the parser's events: the library's own tree would sort the keys.
class ValueBuilder final : public nlohmann::json_sax<Json> {
 public:
  Value take() { return std::move(root_); }
  const std::string& trouble() const { return trouble_; }

  bool null() override { return put(Value::None{}); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return put(static_cast<double>(value));
    return put(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override {
    Dict dict = std::move(open_.back().dict);
    return close(Value(std::move(dict)));
  }
  bool end_array() override {
    Values items = std::move(open_.back().items);
    return close(Value(std::move(items)));
  }
  bool key(std::string& name) override {
    if (open_.back().dict.named(name) != nullptr) {
      trouble_ = " has the key \"" + name.substr(0, 60) + "\" twice";
      return false;
    }
    open_.back().key = name;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception&) override {
    trouble_ = " is not valid JSON at byte " + std::to_string(byte);
    return false;
  }

 private:
  struct Open {
    bool is_dict = false;
    Dict dict;
    Values items;
    std::string key;
  };

  bool open(bool is_dict) {
    if (open_.size() >= static_cast<std::size_t>(limits::kJsonDepthMax)) {
      trouble_ = " is nested too deeply";
      return false;
    }
    open_.emplace_back().is_dict = is_dict;
    return true;
  }
  bool close(Value value) {
    open_.pop_back();
    return put(std::move(value));
  }
  bool put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_dict) {
      open_.back().dict.set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;
  Value root_;
  std::string trouble_;
};

}  // namespace

Result<Value> value_from_json(std::string_view text, const std::string& what) {
  ValueBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return invalid_argument(what + builder.trouble());
  return builder.take();
}

ValueSize size_of(const Value& value) {
  ValueSize size{1, value.text() != nullptr ? value.text()->size() : 0};
  const auto add = [&](const Value& part) {
    const ValueSize more = size_of(part);
    size.values += more.values;
    size.bytes += more.bytes;
  };
  if (const List* list = value.list())
    for (const Value& item : list->items) add(item);
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items()) {
      add(key);
      add(item);
    }
  }
  return size;
}

}  // namespace troupe::jinja
