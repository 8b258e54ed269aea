#include "model/grammar/token_trie.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "model/grammar/token_trie_nodes.h"

namespace troupe {
namespace grammar {

std::array<std::uint8_t, 128> ascii_kinds() {
  std::array<std::uint8_t, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    const bool lower = c >= 'a' && c <= 'z';
    const bool upper = c >= 'A' && c <= 'Z';
    kinds[c] = lower ? 0 : upper ? 1 : c >= '0' && c <= '9' ? 2 : c < 0x20 ? 3 : 4;
  }
  // Those that grammars often take apart from the others.
  std::uint8_t kind = 5;
  for (const char c : std::string_view(" \"\\_-./,:\n\x7f'")) kinds[static_cast<int>(c)] = kind++;
  kinds['\t'] = kinds['\r'] = kinds['\n'];
  assert(kind == kAsciiKinds);
  return kinds;
}

namespace {

/// A longer text counts as none; real ones are up to a few hundred bytes.
constexpr std::size_t kTokenBytesMax = 4096;

/// What may follow within a character.
struct Continuation {
  std::uint8_t lo = 0x80, hi = 0xBF;
  int left = 0;  ///< bytes
};

/// After the first byte of a character above ASCII; nothing left if it cannot be one.
Continuation after_lead(std::uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {0x80, 0xBF, 1};
  if (lead == 0xE0) return {0xA0, 0xBF, 2};
  if (lead == 0xED) return {0x80, 0x9F, 2};
  if (lead >= 0xE1 && lead <= 0xEF) return {0x80, 0xBF, 2};
  if (lead == 0xF0) return {0x90, 0xBF, 3};
  if (lead == 0xF4) return {0x80, 0x8F, 3};
  if (lead >= 0xF1 && lead <= 0xF3) return {0x80, 0xBF, 3};
  return {};
}

class TreeBuilder {
 public:
  explicit TreeBuilder(const TokenTrie::Impl& trie) : trie_(trie) {}

  TokenTree build() {
    const auto tokens = static_cast<TokenId>(trie_.ends.size() - 1);
    for (TokenId id = 0; id < tokens; ++id) {
      const std::size_t length = text(id).size();
      if (length > 0) tree_.order.push_back(id);
    }
    std::stable_sort(tree_.order.begin(), tree_.order.end(),
                     [&](TokenId a, TokenId b) { return text(a) < text(b); });
    add_nodes();
    add_subtrees();
    for (auto n = static_cast<std::uint32_t>(tree_.nodes.size() - 1); n-- > 0;)
      tree_.nodes[n].kinds = kinds_below(n);
    return std::move(tree_);
  }

 private:
  std::string_view text(TokenId id) const {
    return std::string_view(trie_.text).substr(trie_.ends[id], trie_.ends[id + 1] - trie_.ends[id]);
  }

  void add_node(std::uint8_t byte, std::size_t depth, std::size_t first_token) {
    TokenTreeNode node;
    node.byte = byte;
    node.depth = static_cast<std::uint16_t>(depth);
    node.first = static_cast<std::uint32_t>(first_token);
    tree_.nodes.push_back(node);
  }

  void add_nodes() {
    add_node(0, 0, 0);
    std::string_view before;
    for (std::size_t i = 0; i < tree_.order.size(); ++i) {
      const std::string_view now = text(tree_.order[i]);
      const auto [a, b] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
      for (auto depth = static_cast<std::size_t>(b - now.begin()); depth < now.size(); ++depth)
        add_node(static_cast<std::uint8_t>(now[depth]), depth + 1, i);
      before = now;
    }
    add_node(0, 0, tree_.order.size());
  }

  void add_subtrees() {
    const auto nodes = static_cast<std::uint32_t>(tree_.nodes.size() - 1);
    std::vector<std::uint32_t> path;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      tree_.nodes[n].end = nodes;
      for (; path.size() > tree_.nodes[n].depth; path.pop_back()) tree_.nodes[path.back()].end = n;
      path.push_back(n);
    }
    for (std::uint32_t n = nodes; n-- > 0;) {
      std::uint16_t& height = tree_.nodes[n].height;
      for_each_child(n, [&](std::uint32_t child) {
        height = std::max<std::uint16_t>(height, tree_.nodes[child].height + 1);
      });
    }
  }

  template <class Each>
  void for_each_child(std::uint32_t n, const Each& each) {
    for (std::uint32_t child = n + 1; child < tree_.nodes[n].end; child = tree_.nodes[child].end)
      each(child);
  }

  std::uint32_t kinds_below(std::uint32_t n) {
    std::uint32_t kinds = 0;
    for_each_child(n, [&](std::uint32_t child) {
      const std::uint8_t byte = tree_.nodes[child].byte;
      if (byte < 0x80) {
        kinds |= 1u << ascii_[byte] | tree_.nodes[child].kinds;
        return;
      }
      const Continuation next = after_lead(byte);
      kinds |= next.left == 0 ? kIllFormed : kWellFormed | kinds_within(child, next);
    });
    return kinds;
  }

  /// Of what follows in the middle of a character. A token may end there.
  std::uint32_t kinds_within(std::uint32_t n, Continuation expected) {
    std::uint32_t kinds = 0;
    for_each_child(n, [&](std::uint32_t child) {
      const std::uint8_t byte = tree_.nodes[child].byte;
      if (byte < expected.lo || byte > expected.hi) {
        kinds |= kIllFormed;
      } else if (expected.left == 1) {
        kinds |= tree_.nodes[child].kinds;
      } else {
        kinds |= kinds_within(child, {0x80, 0xBF, expected.left - 1});
      }
    });
    return kinds;
  }

  const TokenTrie::Impl& trie_;
  TokenTree tree_;
  const std::array<std::uint8_t, 128> ascii_ = ascii_kinds();
};

}  // namespace
}  // namespace grammar

std::shared_ptr<const TokenTrie> TokenTrie::make(const std::vector<std::string_view>& tokens,
                                                 TokenId vocab_size) {
  auto impl = std::make_unique<Impl>();
  assert(vocab_size >= 0 && tokens.size() <= static_cast<std::size_t>(vocab_size));
  impl->vocab_size = vocab_size;
  for (const std::string_view token : tokens) {
    if (token.size() <= grammar::kTokenBytesMax) impl->text += token;
    impl->ends.push_back(impl->text.size());
  }
  impl->tree = grammar::TreeBuilder(*impl).build();
  return std::shared_ptr<const TokenTrie>(new TokenTrie(std::move(impl)));
}

TokenTrie::TokenTrie(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
TokenTrie::~TokenTrie() = default;

TokenId TokenTrie::vocab_size() const { return impl_->vocab_size; }

std::string_view TokenTrie::token(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) + 1 >= impl_->ends.size()) return {};
  return std::string_view(impl_->text)
      .substr(impl_->ends[id], impl_->ends[id + 1] - impl_->ends[id]);
}

}  // namespace troupe
