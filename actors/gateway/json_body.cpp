#include "actors/gateway/json_body.h"

#include <string>
#include <vector>

#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

/// Builds the tree as nlohmann's own builder does, and stops at the first thing we do not take.
class Builder : public nlohmann::json_sax<json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return fail("holds binary data"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    json& object = *stack_.back();
    if (object.contains(name)) return fail("has the name '" + name.substr(0, 64) + "' twice");
    slot_ = &object[name];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    if (dynamic_cast<const nlohmann::detail::out_of_range*>(&e) != nullptr)
      return fail("has a number near byte " + std::to_string(position) +
                  " that is larger than can be read, some 1.8e308");
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    const std::string_view what = e.what();
    const auto bracket = what.find("] ");
    std::string detail(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
    if (detail.size() > 300) detail.resize(300);
    return fail("is not valid JSON near byte " + std::to_string(position) + ": " + detail);
  }

  json root;
  std::string error;

 private:
  bool fail(std::string what) {
    if (error.empty()) error = "The request's body " + std::move(what) + ".";
    return false;
  }

  template <class T>
  bool add(T&& v) {
    return place(std::forward<T>(v)) != nullptr;
  }

  template <class T>
  json* place(T&& v) {
    if (++values_ > limits::kJsonValuesMax) {
      fail("holds more than " + std::to_string(limits::kJsonValuesMax) + " values");
      return nullptr;
    }
    if (stack_.empty()) {
      root = json(std::forward<T>(v));
      return &root;
    }
    json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.emplace_back(std::forward<T>(v));
      return &parent.back();
    }
    *slot_ = json(std::forward<T>(v));
    return slot_;
  }

  bool open(json container) {
    if (stack_.size() >= static_cast<std::size_t>(limits::kJsonDepthMax)) {
      return fail("is nested deeper than " + std::to_string(limits::kJsonDepthMax) + " levels");
    }
    json* placed = place(std::move(container));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  std::vector<json*> stack_;  // The open containers; a parent does not move while a child is open.
  json* slot_ = nullptr;      // Where the value of the last key goes.
  std::size_t values_ = 0;
};

}  // namespace

Result<json> parse_json_body(std::string_view body) {
  Builder builder;
  bool read = false;
  try {
    read = json::sax_parse(body.begin(), body.end(), &builder);
  } catch (const std::exception& e) {
    return invalid_argument(std::string("The request's body cannot be read as JSON: ") + e.what());
  }
  if (!read) {
    return invalid_argument(builder.error.empty() ? "The request's body is not valid JSON."
                                                  : builder.error);
  }
  if (!builder.root.is_object()) {
    return invalid_argument("The request's body must be a JSON object, with named fields.");
  }
  return std::move(builder.root);
}

}  // namespace troupe
