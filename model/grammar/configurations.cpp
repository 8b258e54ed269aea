#include "model/grammar/configurations.h"

#include <algorithm>
#include <utility>

#include "model/grammar/token_trie_nodes.h"

namespace troupe::grammar {
namespace {

/// A step that is looked up for the first time, beside what the stacks do for it.
constexpr std::uint64_t kStepCost = 32;

}  // namespace

Configurations::Configurations(const Automaton& automaton, std::uint32_t bytes_max)
    : automaton_(&automaton), ascii_kinds_(ascii_kinds()), stacks_(automaton, bytes_max) {
  intern({});  // kDead
}

std::uint32_t Configurations::alone(Item item) {
  Items items;
  items.items.push_back(item);
  return intern(items);
}

std::uint32_t Configurations::closed(Item item) { return intern(stacks_.close({&item, 1})); }

std::uint32_t Configurations::intern(const Items& items) {
  std::vector<std::uint32_t> key = {items.popped + 2u * items.ended};
  for (const Item& item : items.items) key.insert(key.end(), {item.state, item.node});
  const std::uint32_t number = keys_.intern(key);
  if (number < all_.size()) return number;
  Configuration made;
  made.items = items.items;
  made.popped = items.popped;
  for (const Item& item : items.items)
    made.least = std::min(made.least, stacks_.least_count(item.node));
  find_parts(made);
  bytes_ +=
      sizeof(Configuration) + made.items.size() * sizeof(Item) + made.next.size() * sizeof(Step);
  all_.push_back(std::move(made));
  return number;
}

void Configurations::find_parts(Configuration& c) const {
  std::array<bool, 257> cut{};
  std::array<int, 257> depth{};  // how many edges begin minus how many end
  for (const Item& item : c.items) {
    for (const Automaton::ByteEdge& e : automaton_->bytes_of(item.state)) {
      cut[e.lo] = cut[e.hi + 1] = true;
      ++depth[e.lo];
      --depth[e.hi + 1];
    }
  }
  std::uint32_t parts = 0;
  int edges = 0;
  for (int b = 0; b < 256; ++b) {
    edges += depth[b];
    if (edges == 0) continue;
    if (cut[b] || c.part_of[b - 1] == 0) ++parts;
    c.part_of[b] = static_cast<std::uint16_t>(parts);
  }
  c.next.assign(parts + 1, {});
}

Configurations::Step& Configurations::find_step(std::uint32_t c, std::uint8_t byte) {
  const std::uint64_t before = stacks_.work();
  const std::uint32_t to = intern(stacks_.step(all_[c].items, byte));
  Step& step = all_[c].next[all_[c].part_of[byte]];
  step.to = to;
  step.cost = static_cast<std::uint32_t>(kStepCost + stacks_.work() - before);
  return step;
}

bool Configurations::find_loops(std::uint32_t c, std::uint32_t kinds) {
  if (all_[c].kinds_turn != turn_) all_[c].kinds_charged = 0;
  all_[c].kinds_turn = turn_;
  // One that leaves it settles the matter; the steps over others would never be used.
  for (int kind = 0; kind < kKinds; ++kind) {
    const std::uint32_t bit = 1u << kind;
    if ((kinds & bit) == 0) continue;
    if (((all_[c].looping | all_[c].leaving) & bit) == 0) find_loop(c, kind);
    Configuration& at = all_[c];
    if ((at.kinds_charged & bit) == 0) charged_ += at.kinds_cost[static_cast<std::size_t>(kind)];
    at.kinds_charged |= bit;
    if ((at.leaving & bit) != 0) return false;
  }
  return true;
}

void Configurations::find_loop(std::uint32_t c, int kind) {
  const std::uint64_t before = looked_;
  looked_last_ = {};
  const bool loops = loops_over(c, 1u << kind);
  Configuration& at = all_[c];
  (loops ? at.looping : at.leaving) |= 1u << kind;
  at.kinds_cost.resize(kKinds);
  at.kinds_cost[static_cast<std::size_t>(kind)] = static_cast<std::uint32_t>(looked_ - before);
}

/// next() for the loops' own charges: one for a row of bytes that are one part.
std::uint32_t Configurations::look(std::uint32_t c, std::uint32_t byte) {
  const std::uint32_t part = all_[c].part_of[byte];
  if (part == 0) return kDead;
  const Step& step = known_step(c, static_cast<std::uint8_t>(byte));
  if (looked_last_ != std::pair(c, part)) looked_ += step.cost;
  looked_last_ = {c, part};
  return step.to;
}

bool Configurations::loops_over(std::uint32_t c, std::uint32_t kind) {
  if (kind == kIllFormed) return false;
  if (kind == kWellFormed) return loops_above_ascii(c);
  for (std::uint32_t b = 0; b < 128; ++b) {
    if (kind == 1u << ascii_kinds_[b] && look(c, b) != c) return false;
  }
  return true;
}

bool Configurations::loops_above_ascii(std::uint32_t c) {
  struct Leads {
    std::uint32_t first, last;  ///< first bytes
    std::uint32_t lo, hi;       ///< the second byte
    int more;                   ///< behind the second
  };
  constexpr Leads kLeads[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                              {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                              {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                              {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
  for (const Leads& leads : kLeads) {
    std::uint32_t before = kDead;
    for (std::uint32_t lead = leads.first; lead <= leads.last; ++lead) {
      const std::uint32_t within = look(c, lead);
      if (within == kDead) return false;
      if (within == before) continue;
      if (!comes_back(within, leads.lo, leads.hi, leads.more, c)) return false;
      before = within;
    }
  }
  return true;
}

bool Configurations::comes_back(std::uint32_t from, std::uint32_t lo, std::uint32_t hi, int more,
                                std::uint32_t to) {
  std::uint32_t before = kDead;
  for (std::uint32_t byte = lo; byte <= hi; ++byte) {
    const std::uint32_t within = look(from, byte);
    if (within == kDead) return false;
    if (within == before) continue;
    if (more == 0 ? within != to : !comes_back(within, 0x80, 0xBF, more - 1, to)) return false;
    before = within;
  }
  return true;
}

std::uint32_t Configurations::without_counts(std::uint32_t c) {
  if (all_[c].uncounted != kUnknown) return all_[c].uncounted;
  Items items;
  items.items = all_[c].items;
  items.popped = all_[c].popped;
  items.ended = (keys_[c][0] & 2) != 0;
  for (Item& item : items.items) item.node = stacks_.without_counts(item.node);
  std::sort(items.items.begin(), items.items.end());
  items.items.erase(std::unique(items.items.begin(), items.items.end()), items.items.end());
  const std::uint32_t uncounted = intern(items);
  all_[c].uncounted = uncounted;
  return uncounted;
}

}  // namespace troupe::grammar
