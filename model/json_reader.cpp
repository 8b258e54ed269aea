#include "model/json_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "model/file_error.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// True when brackets outside strings nest deeper than the limit. Runs before the parser, so that
/// depth costs no memory.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limits::kJsonDepthMax) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string range_text(double min, double max) {
  auto show = [](double x) {
    return x == std::floor(x) && std::abs(x) < 1e15 ? std::to_string(static_cast<long long>(x))
                                                    : nlohmann::json(x).dump();
  };
  return "between " + show(min) + " and " + show(max);
}

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// Builds the value from the parser's events, in linear time: the library's own way of watching
/// keys looks through an object each time that one of its values ends.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  Json take() { return std::move(root_); }
  /// Why the events ended, to go on after the file's name.
  const std::string& trouble() const { return trouble_; }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const auto [at, added] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    slot_ = &at->second;
    if (!added) trouble_ = " has the key " + shown(name) + " twice";
    return added;
  }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& e) override {
    const bool syntax = dynamic_cast<const Json::parse_error*>(&e) != nullptr;
    trouble_ = syntax ? " is not valid JSON at byte " + std::to_string(byte)
                      : " holds a JSON value that cannot be read, such as a number out of range";
    return false;
  }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& list = open_.back()->get_ref<Json::array_t&>();
      return &list.emplace_back(std::move(value));
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // objects and arrays, the innermost last
  Json* slot_ = nullptr;     // of the last key of the innermost object
  std::string trouble_;
};

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& file) {
  if (too_deep(text))
    return corrupt(file + " nests brackets deeper than " + std::to_string(limits::kJsonDepthMax) +
                   " levels");
  try {
    TreeBuilder builder;
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
    return corrupt(file + builder.trouble());
  } catch (const std::bad_alloc&) {
    return resource_exhausted(file + " takes more memory to parse than there is");
  }
}

JsonReader::JsonReader(const nlohmann::json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object())
    status_ = corrupt(where_ + " should be a JSON object, but is " + shown(object));
}

const nlohmann::json* JsonReader::find(const char* key) const {
  if (!object_->is_object()) return nullptr;
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonReader::has(const char* key) const { return find(key) != nullptr; }

void JsonReader::fail(const std::string& key, const std::string& expected) {
  if (!status_.ok()) return;
  const auto* value = find(key.c_str());
  if (!value) return missing(key.c_str(), expected);
  status_ = corrupt(where_ + ": " + key + " should be " + expected + ", but is " + shown(*value));
}

void JsonReader::missing(const char* key, const std::string& expected) {
  if (status_.ok())
    status_ = corrupt(where_ + ": " + key + " is missing; it should be " + expected);
}

std::int64_t JsonReader::integer(const char* key, std::int64_t min, std::int64_t max) {
  const auto* value = find(key);
  const bool fits = value && value->is_number_integer() &&
                    !(value->is_number_unsigned() &&
                      value->get<std::uint64_t>() >
                          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (fits) {
    const auto n = value->get<std::int64_t>();
    if (n >= min && n <= max) return n;
  }
  fail(key, "a whole number " + range_text(static_cast<double>(min), static_cast<double>(max)));
  return min;
}

std::int64_t JsonReader::integer_or(const char* key, std::int64_t fallback, std::int64_t min,
                                    std::int64_t max) {
  return has(key) ? integer(key, min, max) : fallback;
}

double JsonReader::number(const char* key, double min, double max) {
  const auto* value = find(key);
  if (value && value->is_number()) {
    const double x = value->get<double>();
    if (x >= min && x <= max) return x;
  }
  fail(key, "a number " + range_text(min, max));
  return min;
}

double JsonReader::number_or(const char* key, double fallback, double min, double max) {
  return has(key) ? number(key, min, max) : fallback;
}

bool JsonReader::boolean_or(const char* key, bool fallback) {
  const auto* value = find(key);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, "true or false");
  return fallback;
}

std::string JsonReader::string(const char* key) {
  const auto* value = find(key);
  if (value && value->is_string()) return value->get<std::string>();
  fail(key, "a string");
  return {};
}

std::string JsonReader::string_or(const char* key, const std::string& fallback) {
  return has(key) ? string(key) : fallback;
}

std::vector<std::int32_t> JsonReader::ints(const char* key, std::int64_t min, std::int64_t max) {
  const auto* value = find(key);
  if (!value) return {};
  std::vector<std::int32_t> found;
  auto add = [&](const nlohmann::json& item) {
    if (!item.is_number_integer()) return false;
    const double n = item.get<double>();
    if (n < static_cast<double>(min) || n > static_cast<double>(max)) return false;
    found.push_back(item.get<std::int32_t>());
    return true;
  };
  bool good = true;
  if (value->is_array())
    for (const auto& item : *value) good = good && add(item);
  else
    good = add(*value);
  if (!good)
    fail(key, "a whole number " +
                  range_text(static_cast<double>(min), static_cast<double>(max)) +
                  " or a list of them");
  return found;
}

std::vector<std::string> JsonReader::strings(const char* key) {
  const auto* value = find(key);
  if (!value) return {};
  std::vector<std::string> found;
  bool good = value->is_array();
  if (good)
    for (const auto& item : *value) {
      good = good && item.is_string();
      if (good) found.push_back(item.get<std::string>());
    }
  if (!good) fail(key, "a list of strings");
  return found;
}

Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max) {
  const auto failed = [&](const char* what) { return file_error(path, what, errno); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed("cannot be opened");
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } close_it{fd};
  struct stat st {};
  if (::fstat(fd, &st) != 0) return failed("cannot be examined");
  if (!S_ISREG(st.st_mode)) return corrupt(path + " should be a regular file");
  if (static_cast<std::uint64_t>(st.st_size) > bytes_max)
    return resource_exhausted(path + " has " + std::to_string(st.st_size) +
                              " bytes, more than the " + std::to_string(bytes_max) +
                              " that such a file may have");
  std::string text(static_cast<std::size_t>(st.st_size), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t n = ::read(fd, text.data() + got, text.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot be read");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  return text;
}

}  // namespace troupe
