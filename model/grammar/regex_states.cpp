#include "model/grammar/regex_states.h"

#include <algorithm>

namespace troupe {

std::uint32_t RegexStates::add_node() {
  nodes_.emplace_back();
  ++steps_;
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

std::uint32_t RegexStates::add_set(std::uint32_t from, const CodeSet& set) {
  const std::uint32_t inner = add_node();
  const std::uint32_t next = add_node();
  nodes_[from].free.push_back(inner);
  nodes_[inner].set = &set;
  nodes_[inner].next = next;
  return next;
}

/// Adds what leads from `from` over the expression; returns where it ends.
std::uint32_t RegexStates::build(const Regex& regex, std::uint32_t from) {
  if (exhausted()) return from;
  const bool surely = reading_ == TextAutomaton::Reading::kSurely;
  switch (regex.kind) {
    case Regex::Kind::kEmpty:
      return from;
    case Regex::Kind::kSet:
      return add_set(from, surely ? regex.surely : regex.maybe);
    case Regex::Kind::kConcat:
      for (const Regex& part : regex.parts) from = build(part, from);
      return from;
    case Regex::Kind::kAlternate: {
      const std::uint32_t end = add_node();
      for (const Regex& part : regex.parts) {
        const std::uint32_t begin = add_node();
        nodes_[from].free.push_back(begin);
        const std::uint32_t last = build(part, begin);
        nodes_[last].free.push_back(end);
      }
      return end;
    }
    case Regex::Kind::kRepeat:
      return build_repeat(regex, from);
    case Regex::Kind::kStart: {
      const std::uint32_t end = add_node();
      nodes_[from].at_start.push_back(end);
      return end;
    }
    case Regex::Kind::kEnd: {
      const std::uint32_t end = add_node();
      nodes_[from].at_end.push_back(end);
      // Python's `$` stands before a last line feed, too.
      if (!surely) {
        static const CodeSet line_feed = CodeSet::one('\n');
        const std::uint32_t after = add_set(from, line_feed);
        nodes_[after].at_end.push_back(end);
      }
      return end;
    }
  }
  return from;
}

std::uint32_t RegexStates::build_repeat(const Regex& regex, std::uint32_t from) {
  const Regex& part = regex.parts.front();
  for (std::size_t i = 0; i < regex.min && !exhausted(); ++i) from = build(part, from);
  if (regex.max == Regex::kUnbounded) {
    const std::uint32_t loop = add_node();
    nodes_[from].free.push_back(loop);
    const std::uint32_t last = build(part, loop);
    nodes_[last].free.push_back(loop);
    return loop;
  }
  const std::uint32_t end = add_node();
  for (std::size_t i = regex.min; i < regex.max && !exhausted(); ++i) {
    nodes_[from].free.push_back(end);
    from = build(part, from);
  }
  nodes_[from].free.push_back(end);
  return end;
}

RegexStates::Items RegexStates::closure(Items items, bool at_start) {
  std::vector<std::uint32_t> open = items;
  Items out;
  std::sort(items.begin(), items.end());
  std::vector<bool> seen(nodes_.size() * 2, false);
  for (const std::uint32_t item : open) seen[item] = true;
  const auto add = [&](std::uint32_t item) {
    if (!seen[item]) open.push_back(item);
    seen[item] = true;
  };
  while (!open.empty()) {
    const std::uint32_t item = open.back();
    open.pop_back();
    ++steps_;
    const Node& node = nodes_[item / 2];
    const std::uint32_t ended = item & 1;
    // Only what takes characters, or is the end, matters from here on.
    if ((node.set && !node.set->empty()) || item / 2 == last_) out.push_back(item);
    for (const std::uint32_t next : node.free) add(next * 2 | ended);
    for (const std::uint32_t next : node.at_end) add(next * 2 | 1);
    if (at_start)
      for (const std::uint32_t next : node.at_start) add(next * 2 | ended);
  }
  steps_ += nodes_.size() / 32;
  std::sort(out.begin(), out.end());
  // Found: whatever follows is accepted.
  if (match_ == TextAutomaton::Match::kSearch &&
      std::binary_search(out.begin(), out.end(), last_ * 2))
    return {last_ * 2};
  return out;
}

std::uint32_t RegexStates::state_of(const Items& items) {
  const auto [at, added] =
      known_.try_emplace(items, static_cast<std::uint32_t>(out_.states_.size()));
  if (added) {
    out_.states_.emplace_back();
    out_.states_.back().accepts = std::any_of(
        items.begin(), items.end(), [this](std::uint32_t item) { return item / 2 == last_; });
    items_of_.push_back(items);
  }
  return at->second;
}

void RegexStates::add_edges(std::uint32_t state) {
  const Items items = items_of_[state];
  if (match_ == TextAutomaton::Match::kSearch && items == Items{last_ * 2}) {
    out_.states_[state].edges.push_back({CodeSet::all(), state});
    return;
  }
  // Between two neighbouring bounds of sets, all characters lead to the same nodes.
  std::vector<std::uint32_t> bounds;
  for (const std::uint32_t item : items) {
    const CodeSet* set = nodes_[item / 2].set;
    if ((item & 1) || !set) continue;
    steps_ += set->ranges().size();
    if (exhausted()) return;
    for (const auto& [first, last] : set->ranges()) {
      bounds.push_back(first);
      bounds.push_back(last + 1);
    }
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::map<Items, std::vector<CodeSet::Range>> ways;
  for (std::size_t i = 0; i + 1 < bounds.size() && !exhausted(); ++i) {
    Items targets;
    for (const std::uint32_t item : items) {
      ++steps_;
      const Node& node = nodes_[item / 2];
      if (!(item & 1) && node.set && node.set->has(bounds[i])) targets.push_back(node.next * 2);
    }
    if (!targets.empty()) ways[targets].emplace_back(bounds[i], bounds[i + 1] - 1);
  }
  for (auto& [targets, ranges] : ways) {
    if (exhausted()) return;
    const Items reached = closure(targets, false);
    if (reached.empty()) continue;
    const std::uint32_t target = state_of(reached);
    CodeSet set(std::move(ranges));
    if (!set.empty()) out_.states_[state].edges.push_back({std::move(set), target});
  }
}

Result<TextAutomaton> RegexStates::run(const Regex& regex) {
  const bool search = match_ == TextAutomaton::Match::kSearch;
  const std::uint32_t first = add_node();
  std::uint32_t begin = first;
  if (search) {
    begin = add_node();
    nodes_[first].free.push_back(begin);
    static const CodeSet any = CodeSet::all();
    const std::uint32_t again = add_set(first, any);
    nodes_[again].free.push_back(first);
  }
  last_ = build(regex, begin);
  if (!exhausted()) (void)state_of(closure({first * 2}, true));
  for (std::uint32_t state = 0; state < out_.states_.size() && !exhausted(); ++state)
    add_edges(state);
  if (exhausted()) return resource_exhausted("the regular expression is too complex.");
  out_.work_ = steps_;
  return std::move(out_);
}

}  // namespace troupe
