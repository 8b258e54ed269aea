#include "model/grammar/endless_rules.h"

#include <unordered_map>
#include <vector>

namespace troupe {
namespace {

struct Rule {
  std::string_view name, text;
};

/// Decides whether an expression has an end, if the rules do that are known to.
class Expression {
 public:
  Expression(std::string_view text, const std::unordered_map<std::string_view, bool>& ends)
      : text_(text), ends_(ends) {}

  bool ends() {
    bool any = false;
    do {
      ++at_;
      any = sequence() || any;
    } while (at_ < text_.size() && text_[at_] == '|');
    return any;
  }

 private:
  bool sequence() {
    bool all = true;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      if (text_[at_] == ' ') {
        ++at_;
        continue;
      }
      const bool one = atom();
      all = (may_be_left_out() || one) && all;
    }
    return all;
  }

  bool atom() {
    const char c = text_[at_];
    if (c == '(') {
      const bool inside = ends();
      ++at_;
      return inside;
    }
    if (c == '"' || c == '[' || c == '<') {
      const char close = c == '"' ? '"' : c == '[' ? ']' : '>';
      for (++at_; at_ < text_.size() && text_[at_] != close; ++at_)
        if (text_[at_] == '\\') ++at_;
      ++at_;
      return true;
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view(" |)(?*+{").find(text_[at_]) == text_.npos) ++at_;
    const auto found = ends_.find(text_.substr(begin, at_ - begin));
    return found == ends_.end() || found->second;  // No rule: `.`
  }

  bool may_be_left_out() {
    const char c = at_ < text_.size() ? text_[at_] : ' ';
    if (c == '?' || c == '*' || c == '+') ++at_;
    if (c != '{') return c == '?' || c == '*';
    const bool zero = text_[at_ + 1] == '0';
    at_ = text_.find('}', at_) + 1;
    return zero;
  }

  std::string_view text_;
  const std::unordered_map<std::string_view, bool>& ends_;
  std::size_t at_ = static_cast<std::size_t>(-1);
};

}  // namespace

std::set<std::string> endless_rules(std::string_view text) {
  std::vector<Rule> rules;
  std::unordered_map<std::string_view, bool> ends;
  while (!text.empty()) {
    const std::size_t line = text.find('\n');
    const std::size_t sign = text.find(" ::= ");
    rules.push_back({text.substr(0, sign), text.substr(sign + 5, line - sign - 5)});
    ends[rules.back().name] = false;
    text.remove_prefix(line + 1);
  }
  // Rules mostly follow what they need, so that few rounds find something.
  for (bool found = true; found;) {
    found = false;
    std::erase_if(rules, [&](const Rule& rule) {
      if (!Expression(rule.text, ends).ends()) return false;
      return ends[rule.name] = found = true;
    });
  }
  std::set<std::string> out;
  for (const Rule& rule : rules) out.emplace(rule.name);
  return out;
}

}  // namespace troupe
