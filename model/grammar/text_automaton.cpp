#include "model/grammar/text_automaton.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "model/grammar/regex_states.h"

namespace troupe {
namespace {

/// A set of so many ranges costs as one step more.
constexpr std::size_t kRangesOfStep = 16;

Error too_large() {
  return resource_exhausted("what the text must be takes more than " +
                            std::to_string(TextAutomaton::kStatesMax) + " states.");
}

bool has_empty_set(const Regex& regex) {
  return (regex.kind == Regex::Kind::kSet && regex.surely.empty()) ||
         std::any_of(regex.parts.begin(), regex.parts.end(), has_empty_set);
}

}  // namespace

Result<TextAutomaton> TextAutomaton::make(const Regex& regex, Match match, Reading reading) {
  auto out = RegexStates(match, reading).run(regex);
  std::size_t work = out ? out->work_ : 0;
  const auto too_much = [&] { return work > 2 * kStepsMax; };
  const Reading other = reading == Reading::kSurely ? Reading::kMaybe : Reading::kSurely;
  for (const Regex& part : regex.ahead) {
    const auto states = RegexStates(Match::kSearch, reading).run(part);
    if (!states) return states;
    if (out) out = out->intersect(*states);
    work += states->work_ + (out ? out->work_ : 0);
    if (too_much()) return too_large();
  }
  for (const Regex& part : regex.not_ahead) {
    const auto states = RegexStates(Match::kSearch, other).run(part);
    if (!states) return states;
    if (out) out = out->intersect(states->complement());
    work += states->work_ + states->states() + (out ? out->work_ : 0);
    if (too_much()) return too_large();
  }
  if (out) out->work_ = work;
  return out;
}

TextAutomaton TextAutomaton::all() {
  TextAutomaton out;
  out.states_.push_back({true, {{CodeSet::all(), 0}}});
  return out;
}

TextAutomaton TextAutomaton::multiples(std::size_t step, std::size_t places) {
  // After one for nothing yet, a state for each remainder of the digits so far: before the point,
  // right behind it, and behind each digit there. What is not written there are zeros, so that
  // only so much of the step counts as they do not bring.
  std::vector<std::size_t> moduli(places + 2), first(places + 3, 1);
  std::size_t unit = 1;
  for (std::size_t place = places + 2; place-- > 0;) {
    if (place > 0 && place <= places) unit *= 10;
    moduli[place] = step / std::gcd(step, unit);
  }
  for (std::size_t place = 0; place < moduli.size(); ++place)
    first[place + 1] = first[place] + moduli[place];
  TextAutomaton out;
  out.states_.resize(first.back());
  out.work_ = 10 * first.back();
  const auto add_digits = [&](std::size_t state, std::size_t rest, std::size_t place) {
    std::map<std::size_t, std::vector<CodeSet::Range>> ways;
    for (std::uint32_t digit = 0; digit < 10; ++digit)
      ways[(rest * 10 + digit) % moduli[place]].emplace_back('0' + digit, '0' + digit);
    for (auto& [next, digits] : ways)
      out.states_[state].edges.push_back(
          {CodeSet(std::move(digits)), static_cast<std::uint32_t>(first[place] + next)});
  };
  out.states_[0].edges.push_back({CodeSet::one('-'), 0});
  add_digits(0, 0, 0);
  for (std::size_t place = 0; place < moduli.size(); ++place) {
    for (std::size_t rest = 0; rest < moduli[place]; ++rest) {
      const std::size_t state = first[place] + rest;
      out.states_[state].accepts = place != 1 && rest == 0;
      if (place == 0 && places > 0)
        out.states_[state].edges.push_back(
            {CodeSet::one('.'), static_cast<std::uint32_t>(first[1] + rest)});
      if (place <= places) add_digits(state, rest, place == 0 ? 0 : place + 1);
    }
  }
  return out;
}

Result<TextAutomaton> TextAutomaton::lengths(std::size_t min, std::size_t max) {
  const std::size_t last = max == Regex::kUnbounded ? min : max;
  if (last >= kStatesMax) return too_large();
  TextAutomaton out;
  for (std::size_t count = 0; count <= last; ++count) {
    State state{count >= min, {}};
    if (count < last)
      state.edges.push_back({CodeSet::all(), static_cast<std::uint32_t>(count + 1)});
    else if (max == Regex::kUnbounded)
      state.edges.push_back({CodeSet::all(), static_cast<std::uint32_t>(count)});
    out.states_.push_back(std::move(state));
  }
  out.work_ = last;
  return out;
}

Result<TextAutomaton> TextAutomaton::all_but(const std::vector<std::string>& texts) {
  // A trie whose nodes accept unless a text ends there; what leaves it is accepted (state 1).
  constexpr std::size_t kNodesMax = 64'000;
  std::vector<std::map<std::uint32_t, std::uint32_t>> next(2);
  TextAutomaton out;
  out.states_.assign(2, {true, {}});
  for (const std::string& text : texts) {
    std::uint32_t at = 0;
    for (const std::uint32_t code : code_points(text)) {
      const auto [child, added] =
          next[at].try_emplace(code, static_cast<std::uint32_t>(next.size()));
      at = child->second;
      if (!added) continue;
      if (next.size() >= kNodesMax) return too_large();
      next.emplace_back();
      out.states_.push_back({true, {}});
    }
    out.states_[at].accepts = false;
  }
  for (std::size_t i = 0; i < next.size(); ++i) {
    std::vector<CodeSet::Range> here;
    for (const auto& [code, child] : next[i]) {
      here.emplace_back(code, code);
      out.states_[i].edges.push_back({CodeSet::one(code), child});
    }
    const CodeSet others = CodeSet(std::move(here)).complement();
    if (!others.empty()) out.states_[i].edges.push_back({others, 1});
  }
  out.work_ = 4 * next.size();
  return out;
}

Result<TextAutomaton> TextAutomaton::intersect(const TextAutomaton& other) const {
  TextAutomaton out;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  const auto state_of = [&](std::uint32_t a, std::uint32_t b) {
    const auto [at, added] = known.try_emplace({a, b}, static_cast<std::uint32_t>(pairs.size()));
    if (added) {
      pairs.emplace_back(a, b);
      out.states_.push_back({states_[a].accepts && other.states_[b].accepts, {}});
    }
    return at->second;
  };
  if (states_.empty() || other.states_.empty()) return out;
  const std::vector<bool> mine = useful();
  const std::vector<bool> theirs = other.useful();
  (void)state_of(0, 0);
  std::size_t steps = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [a, b] = pairs[i];
    for (const Edge& left : states_[a].edges) {
      if (!mine[left.target]) continue;
      for (const Edge& right : other.states_[b].edges) {
        if (!theirs[right.target]) continue;
        CodeSet both = left.set & right.set;
        if (!both.empty()) {
          const std::uint32_t target = state_of(left.target, right.target);
          out.states_[i].edges.push_back({std::move(both), target});
        }
        steps += 1 + (left.set.ranges().size() + right.set.ranges().size()) / kRangesOfStep;
        if (steps > kStepsMax) return too_large();
      }
    }
    if (pairs.size() > kStatesMax * 8) return too_large();
  }
  out.work_ = steps + pairs.size() + states() + other.states();
  const std::vector<bool> kept = out.useful();
  if (static_cast<std::size_t>(std::count(kept.begin(), kept.end(), true)) > kStatesMax)
    return too_large();
  return out;
}

std::size_t TextAutomaton::size() const {
  std::size_t ranges = 0;
  for (const State& state : states_)
    for (const Edge& edge : state.edges) ranges += edge.set.ranges().size();
  return states_.size() + ranges / kRangesOfStep;
}

TextAutomaton TextAutomaton::complement() const {
  TextAutomaton out = *this;
  if (out.states_.empty()) return all();
  const auto sink = static_cast<std::uint32_t>(out.states_.size());
  for (State& state : out.states_) {
    state.accepts = !state.accepts;
    CodeSet taken;
    for (const Edge& edge : state.edges) taken = taken | edge.set;
    if (CodeSet others = taken.complement(); !others.empty())
      state.edges.push_back({std::move(others), sink});
  }
  out.states_.push_back({true, {{CodeSet::all(), sink}}});
  out.work_ = out.states_.size();
  return out;
}

/// The states from which a text can still be accepted.
std::vector<bool> TextAutomaton::useful() const {
  std::vector<std::vector<std::uint32_t>> before(states_.size());
  std::vector<std::uint32_t> open;
  std::vector<bool> out(states_.size(), false);
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges) before[edge.target].push_back(i);
    if (states_[i].accepts) {
      open.push_back(i);
      out[i] = true;
    }
  }
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    for (const std::uint32_t i : before[at]) {
      if (!out[i]) open.push_back(i);
      out[i] = true;
    }
  }
  return out;
}

bool TextAutomaton::empty() const { return states_.empty() || !useful()[0]; }

bool TextAutomaton::accepts(std::string_view text) const {
  if (states_.empty()) return false;
  std::uint32_t at = 0;
  for (const std::uint32_t code : code_points(text)) {
    const auto& edges = states_[at].edges;
    const auto edge =
        std::find_if(edges.begin(), edges.end(), [code](const Edge& e) { return e.set.has(code); });
    if (edge == edges.end()) return false;
    at = edge->target;
  }
  return states_[at].accepts;
}

std::string TextAutomaton::write(GrammarWriter& writer, Spelling spelling) const {
  const std::vector<bool> used = useful();
  // A state that goes nowhere but to itself is written where it is named.
  const auto is_leaf = [&](std::uint32_t i) {
    return std::all_of(states_[i].edges.begin(), states_[i].edges.end(),
                       [&](const Edge& e) { return e.target == i || !used[e.target]; });
  };
  std::vector<std::string> names(states_.size());
  std::vector<std::uint32_t> order{0};
  names[0] = writer.reserve("text");
  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::uint32_t i = order[at];
    std::string loop;
    std::map<std::uint32_t, CodeSet> ways;
    for (const Edge& edge : states_[i].edges) {
      if (!used[edge.target]) continue;
      CodeSet& set = ways[edge.target];
      set = set | edge.set;
    }
    std::string text = states_[i].accepts ? "\"\"" : "";
    for (const auto& [target, set] : ways) {
      if (target == i) {
        loop = spelled(set, spelling) + "*";
        continue;
      }
      if (!text.empty()) text += " | ";
      text += spelled(set, spelling);
      if (is_leaf(target)) {
        CodeSet again;
        for (const Edge& edge : states_[target].edges)
          if (edge.target == target) again = again | edge.set;
        if (!again.empty()) text += " " + spelled(again, spelling) + "*";
        continue;
      }
      if (names[target].empty()) {
        names[target] = writer.reserve("text");
        order.push_back(target);
      }
      text += " " + names[target];
    }
    if (!loop.empty()) text = text == "\"\"" ? loop : loop + " (" + text + ")";
    writer.define(names[i], text);
  }
  return names[0];
}

Result<RegexText> RegexText::whole(const Regex& regex) {
  Regex::Trimmed plain = regex.trimmed();
  if (!plain.regex.has_anchors() && !has_empty_set(plain.regex))
    return RegexText(std::move(plain.regex), 0);
  auto states =
      TextAutomaton::make(regex, TextAutomaton::Match::kWhole, TextAutomaton::Reading::kSurely);
  if (!states) return states.error();
  const std::size_t work = states->work();
  return RegexText(std::move(*states), work);
}

Result<RegexText> RegexText::search(const Regex& regex) {
  Regex::Trimmed plain = regex.trimmed();
  const bool simple = !plain.regex.has_anchors() && !has_empty_set(plain.regex);
  if (simple && plain.start && plain.end) return RegexText(std::move(plain.regex), 0);
  auto states =
      TextAutomaton::make(regex, TextAutomaton::Match::kSearch, TextAutomaton::Reading::kSurely);
  const std::size_t work = states ? states->work() : TextAutomaton::kStepsMax;
  if (states) return RegexText(std::move(*states), work);
  if (!simple) return states.error();
  const Regex any = Regex::repeat(Regex::set(CodeSet::all()), 0, Regex::kUnbounded);
  std::vector<Regex> parts;
  if (!plain.start) parts.push_back(any);
  parts.push_back(std::move(plain.regex));
  if (!plain.end) parts.push_back(any);
  return RegexText(Regex::concat(std::move(parts)), work);
}

bool RegexText::empty() const {
  const auto* states = std::get_if<TextAutomaton>(&text_);
  return states && states->empty();
}

std::size_t RegexText::size() const {
  const auto* states = std::get_if<TextAutomaton>(&text_);
  return states ? states->size() : 1;
}

std::string RegexText::write(GrammarWriter& writer, Spelling spelling) const {
  if (const auto* states = std::get_if<TextAutomaton>(&text_))
    return states->write(writer, spelling);
  return writer.rule("text", std::get_if<Regex>(&text_)->expression(spelling));
}

}  // namespace troupe
