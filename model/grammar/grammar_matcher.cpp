#include "model/grammar/grammar_matcher.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "model/grammar/compiled_grammar_impl.h"
#include "model/grammar/mask_cache.h"
#include "model/grammar/stacks.h"

namespace troupe {
namespace {

using grammar::Item;
using grammar::Items;
using grammar::Stacks;

/// So many ways to read an answer are followed. A grammar that allows more at one place is held to
/// the first ones: the answer still matches it, but some of what could follow is not offered.
constexpr std::size_t kItemsMax = 512;
/// The same for the ways on behind one callee.
constexpr std::size_t kEdgesMax = 64;
/// The stacks of an answer are cleaned up when they have grown to twice what they needed, and this.
constexpr std::size_t kBytesSlack = 1u << 20;
/// An answer that needs more is not taken further: brackets within brackets, a hundred thousand
/// deep. To clean up so many takes a fifth of a second.
constexpr std::size_t kBytesMax = 32u << 20;
/// Nor by a token that takes more than so much of Stacks::work(), some 50 ms.
constexpr std::uint64_t kWorkMax = 2'000'000;

}  // namespace

struct GrammarMatcher::Impl {
  Impl(std::shared_ptr<const CompiledGrammar> g, std::shared_ptr<const TokenTrie> t)
      : grammar(std::move(g)),
        tokens(std::move(t)),
        masks(grammar->impl().masks_for(tokens)),
        stacks(automaton()) {
    const Item start{automaton().callees[0].start, Stacks::kEnd};
    at = stacks.close({&start, 1});
    hold_to_bounds();
  }

  const grammar::Automaton& automaton() const { return grammar->impl().automaton; }

  /// Where the token's text leads.
  Items by_text(TokenId token) {
    const std::string_view text = tokens->token(token);
    Items items;
    if (text.empty()) return items;
    items.items = at.items;
    const std::uint64_t work = stacks.work();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (items.items.empty()) return {};  // it may have ended, but the text goes on
      if (stacks.work() - work > kWorkMax) return {};
      items = stacks.step(items.items, static_cast<std::uint8_t>(text[i]));
    }
    return items;
  }

  /// Where the token itself leads, if the grammar names it here.
  Items by_id(TokenId token) {
    std::vector<Item> next;
    for (const Item& item : at.items) {
      for (const auto& edge : automaton().tokens_of(item.state)) {
        if (edge.id == token) next.push_back({edge.to, item.node});
      }
    }
    return next.empty() ? Items() : stacks.close(next);
  }

  void find_bits() {
    if (!bits.empty()) return;
    bits.assign((static_cast<std::size_t>(tokens->vocab_size()) + 31) / 32, 0);
    masks->add_allowed(stacks, at.items, bits);
  }

  /// What has a bound is offered in part, and then only that part is taken.
  bool offers(TokenId token) {
    find_bits();
    return (bits[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }

  void hold_to_bounds() {
    if (at.items.size() > kItemsMax) at.items.resize(kItemsMax);
    const bool narrow = stacks.widest() <= kEdgesMax;
    if (narrow && stacks.bytes() < 2 * bytes_needed + kBytesSlack) return;
    stacks.compact(at.items, kEdgesMax);
    bytes_needed = stacks.bytes();
  }

  std::shared_ptr<const CompiledGrammar> grammar;
  std::shared_ptr<const TokenTrie> tokens;
  std::shared_ptr<grammar::MaskCache> masks;
  Stacks stacks;
  Items at;
  std::vector<std::uint32_t> bits;  // of allowed(), once it is known here; else empty
  std::size_t bytes_needed = 0;
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar,
                               std::shared_ptr<const TokenTrie> tokens)
    : impl_(std::make_unique<Impl>(std::move(grammar), std::move(tokens))) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

bool GrammarMatcher::accept(TokenId token) {
  Impl& m = *impl_;
  if (token < 0 || token >= m.tokens->vocab_size()) return false;
  const Stacks::Mark before = m.stacks.mark();
  Items next = m.by_id(token);
  const Items by_text = m.by_text(token);
  next.items.insert(next.items.end(), by_text.items.begin(), by_text.items.end());
  std::sort(next.items.begin(), next.items.end());
  next.items.erase(std::unique(next.items.begin(), next.items.end()), next.items.end());
  next.ended = next.ended || by_text.ended;
  if (next.empty() || m.stacks.bytes() > kBytesMax || !m.offers(token)) {
    m.stacks.rewind(before);
    return false;
  }
  m.at = std::move(next);
  m.bits.clear();
  m.hold_to_bounds();
  return true;
}

bool GrammarMatcher::complete() const { return impl_->at.ended; }

void GrammarMatcher::allowed(std::span<std::uint32_t> bits) {
  Impl& m = *impl_;
  m.find_bits();
  assert(bits.size() >= m.bits.size());
  std::fill(std::copy(m.bits.begin(), m.bits.end(), bits.begin()), bits.end(), 0u);
}

}  // namespace troupe
