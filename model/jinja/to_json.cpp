#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "model/jinja/json.h"
#include "model/jinja/python.h"
#include "model/tokenizer/utf8.h"

namespace troupe::jinja {
namespace {

class JsonText {
 public:
  JsonText(Context& context, const JsonForm& form) : context_(context), form_(form) {}

  void put(const Value& value, int level) {
    if (!context_.spend(1)) return;
    if (const auto* text = value.text()) {
      put_text(*text);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (const auto* flag = value.boolean()) {
      out_ += *flag ? "true" : "false";
    } else if (const auto* number = value.integer()) {
      out_ += std::to_string(*number);
    } else if (const auto* real = value.real()) {
      out_ += real_json(*real);
    } else if (const List* list = value.list()) {
      put_list(*list, level);
    } else if (const Dict* dict = value.dict()) {
      put_dict(*dict, level);
    } else {
      context_.fail("Object of type " + std::string(value.type_name()) +
                    " is not JSON serializable" +
                    (value.is_undefined() ? ": " + value.trouble() : std::string()));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string real_json(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void put_escape(char32_t unit) {
    std::array<char, 16> escape{};
    std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(unit));
    out_ += escape.data();
  }

  void put_text(std::string_view text) {
    if (!context_.spend_characters(text) || !context_.spend_bytes(text.size() + 2)) return;
    out_ += '"';
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t first = i;
      const char32_t c = utf8::decode(text, i);
      constexpr std::string_view kEscapes = "\"\"\\\\\nn\rr\tt\bb\ff";
      std::size_t at = 0;
      while (at < kEscapes.size() && static_cast<char32_t>(kEscapes[at]) != c) at += 2;
      if (at < kEscapes.size()) {
        out_ += '\\';
        out_ += kEscapes[at + 1];
      } else if (c < 0x20 || (form_.ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
        put_escape(c);
      } else if (form_.ascii && c >= 0x10000) {
        put_escape(0xD800 + ((c - 0x10000) >> 10));
        put_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out_ += text.substr(first, i - first);
      }
    }
    out_ += '"';
  }

  /// What stands between others may be any text.
  void put_sign(const std::string& sign) {
    if (context_.spend_bytes(sign.size())) out_ += sign;
  }

  void begin_line(int level) {
    if (!form_.several_lines) return;
    const auto bytes = form_.indent.size() * static_cast<std::size_t>(level);
    if (!context_.spend_bytes(bytes + 1)) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += form_.indent;
  }

  void put_list(const List& list, int level) {
    out_ += '[';
    for (std::size_t i = 0; i < list.items.size() && !context_.failed(); ++i) {
      if (i > 0) put_sign(form_.comma);
      begin_line(level + 1);
      put(list.items[i], level + 1);
    }
    if (!list.items.empty()) begin_line(level);
    out_ += ']';
  }

  void put_dict(const Dict& dict, int level) {
    auto items = dict.items();
    if (form_.sorted) {
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return less(context_, a.first, b.first);
      });
    }
    out_ += '{';
    for (std::size_t i = 0; i < items.size() && !context_.failed(); ++i) {
      if (i > 0) put_sign(form_.comma);
      begin_line(level + 1);
      put_key(items[i].first);
      put_sign(form_.colon);
      put(items[i].second, level + 1);
    }
    if (!items.empty()) begin_line(level);
    out_ += '}';
  }

  void put_key(const Value& key) {
    if (key.text() != nullptr) return put_text(*key.text());
    if (key.list() != nullptr) {
      context_.fail("a key of JSON cannot be a tuple");
      return;
    }
    out_ += '"';
    put(key, 0);
    out_ += '"';
  }

  Context& context_;
  const JsonForm& form_;
  std::string out_;
};

}  // namespace

std::string json_text(Context& context, const Value& value, const JsonForm& form) {
  JsonText writer(context, form);
  writer.put(value, 0);
  std::string text = writer.take();
  return context.spend_bytes(text.size()) ? text : std::string();
}

}  // namespace troupe::jinja
