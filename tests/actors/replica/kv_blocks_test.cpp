#include "actors/replica/kv_blocks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace troupe;

namespace {

constexpr std::int32_t kSize = 4;

/// Blocks that are asked for by tokens.
struct Kv : KvBlocks {
  using KvBlocks::KvBlocks;
  std::vector<KvKey> keys(std::span<const TokenId> tokens) {
    std::vector<KvKey> keys;
    extend(tokens, keys);
    return keys;
  }
  KvPrefix find(std::span<const TokenId> tokens, std::int32_t positions_max) {
    return KvBlocks::find(keys(tokens), positions_max);
  }
  void share(std::span<const TokenId> tokens, KvPrefix prefix, KvTable& table) {
    KvBlocks::share(keys(tokens), prefix, table);
  }
  void commit(std::span<const TokenId> tokens, std::int32_t positions, KvTable& table) {
    KvBlocks::commit(keys(tokens), positions, table);
  }
};

Kv pool(std::int32_t blocks, bool keep = true, std::string_view identity = "bits") {
  return Kv(KvBlocks::Options{blocks, kSize, keep, identity});
}

std::vector<TokenId> counting(std::int32_t count, TokenId from = 0) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(from + i);
  return tokens;
}

/// Computes all rows of a sequence; what it found is not computed.
KvTable compute(Kv& kv, std::span<const TokenId> sequence) {
  KvTable table;
  const auto length = static_cast<std::int32_t>(sequence.size());
  kv.share(sequence, kv.find(sequence, length), table);
  kv.take((length + kSize - 1) / kSize - static_cast<std::int32_t>(table.blocks.size()), table);
  kv.commit(sequence, length, table);
  return table;
}

std::string check(const KvBlocks& kv, const std::vector<const KvTable*>& tables) {
  return kv.violation(tables);
}

}  // namespace

TEST_CASE("a block is found by all that its rows depend on") {
  const std::vector<TokenId> tokens = counting(14);
  Kv kv = pool(16);
  KvTable table = compute(kv, tokens);
  CHECK(table.written == 3);  // the fourth is not full
  kv.give_back(table);
  CHECK(kv.used() == 0);
  CHECK(kv.cached() == 3);
  CHECK(kv.find(tokens, 14) == KvPrefix{3, 3});
  CHECK(kv.find(tokens, 11) == KvPrefix{2, 2});
  CHECK(kv.find(tokens, 3) == KvPrefix{});

  struct Case {
    std::string what;
    std::size_t changed;  // the token that differs
    std::int32_t found;
  };
  for (const Case& c : {Case{"the first token", 0, 0}, Case{"the last of a block", 3, 0},
                        Case{"the second block", 4, 1}, Case{"the third", 11, 2},
                        Case{"what is in no full block", 12, 3}}) {
    CAPTURE(c.what);
    std::vector<TokenId> other = tokens;
    other[c.changed] = 99;
    CHECK(kv.find(other, 14).blocks == c.found);
  }
  // The same block behind another one.
  std::vector<TokenId> moved = counting(4, 50);
  moved.insert(moved.end(), tokens.begin() + 4, tokens.begin() + 8);
  CHECK(kv.find(moved, 8).blocks == 0);
}

TEST_CASE("a block's key is a digest that nobody can forge, of all that is before it") {
  const std::vector<TokenId> tokens = counting(9);
  Kv kv = pool(4);
  const auto sha256 = [](auto... parts) {
    Sha256 hash;
    (hash.add(std::as_bytes(std::span(parts))), ...);
    return hash.finish();
  };
  const KvKey root = sha256(std::string_view("bits"));
  const KvKey first = sha256(root, counting(4));
  CHECK(kv.keys(tokens) == std::vector<KvKey>{first, sha256(first, counting(4, 4))});
  // As a sequence grows.
  std::vector<KvKey> keys;
  for (std::size_t length = 0; length <= tokens.size(); ++length)
    kv.extend(std::span(tokens).first(length), keys);
  CHECK(keys == kv.keys(tokens));
  CHECK(pool(4, true, "others").keys(tokens)[0] != keys[0]);
}

TEST_CASE("where nothing is kept, nothing is found") {
  const std::vector<TokenId> tokens = counting(8);
  Kv kv = pool(4, false);
  KvTable table = compute(kv, tokens);
  CHECK(kv.find(tokens, 8) == KvPrefix{});
  kv.give_back(table);
  CHECK(kv.cached() == 0);
  CHECK(kv.available() == 4);
}

TEST_CASE("rows of a step that did not come back are not found") {
  const std::vector<TokenId> tokens = counting(8);
  Kv kv = pool(4);
  KvTable table;
  kv.take(2, table);
  CHECK(kv.find(tokens, 8) == KvPrefix{});
  kv.commit(tokens, 5, table);
  CHECK(kv.find(tokens, 8) == KvPrefix{1, 0});
  kv.give_back(table);
  CHECK(kv.cached() == 1);
  CHECK(kv.available() == 4);
}

TEST_CASE("free blocks are taken first, then those that have been idle the longest") {
  const std::vector<TokenId> a = counting(8), b = counting(4, 30), c = counting(4, 40);
  Kv kv = pool(5);
  KvTable first = compute(kv, a), second = compute(kv, b), third = compute(kv, c);
  kv.give_back(second);
  kv.give_back(first);
  KvTable taken;
  kv.take(1, taken);  // the free one
  CHECK(kv.cached() == 3);
  kv.take(1, taken);
  CHECK(kv.find(b, 4).blocks == 0);
  CHECK(kv.find(a, 8).blocks == 2);
  kv.take(1, taken);  // a sequence's end goes before its beginning
  CHECK(kv.find(a, 8).blocks == 1);
  CHECK(kv.find(c, 4) == KvPrefix{1, 0});
  // What is found again is the newest from then on.
  KvTable again;
  kv.share(a, kv.find(a, 8), again);
  CHECK(kv.available() == 0);
  CHECK(check(kv, {&taken, &third, &again}) == "");
  kv.give_back(third);
  kv.give_back(again);
  kv.take(1, taken);
  CHECK(kv.find(c, 4).blocks == 0);
  CHECK(kv.find(a, 8).blocks == 1);
  kv.give_back(taken);
  CHECK(check(kv, {}) == "");
}

TEST_CASE("a block that several hold comes free with the last of them") {
  const std::vector<TokenId> tokens = counting(8);
  Kv kv = pool(8);
  KvTable a = compute(kv, tokens), b = compute(kv, tokens);
  CHECK(a.blocks == b.blocks);
  CHECK(a.slot != b.slot);
  CHECK(kv.used() == 2);
  const std::vector<const KvTable*> one{&a}, both{&a, &b};
  CHECK(kv.freed_by(one) == 0);
  CHECK(kv.freed_by(both) == 2);
  kv.give_back(a);
  CHECK(kv.used() == 2);
  kv.give_back(b);
  CHECK(kv.used() == 0);
}

TEST_CASE("of two sequences that computed the same at once, one's blocks are found again") {
  const std::vector<TokenId> tokens = counting(8);
  Kv kv = pool(8);
  KvTable a, b;
  kv.take(2, a);
  kv.take(2, b);
  kv.commit(tokens, 4, a);
  kv.commit(tokens, 8, b);
  kv.commit(tokens, 8, a);
  CHECK(check(kv, {&a, &b}) == "");
  KvTable c;
  kv.share(tokens, kv.find(tokens, 8), c);
  CHECK(c.blocks == std::vector<std::int32_t>{a.blocks[0], b.blocks[1]});
  kv.give_back(a);
  kv.give_back(b);
  kv.give_back(c);
  CHECK(kv.cached() == 2);
  CHECK(kv.available() == 8);
}

TEST_CASE("what is forgotten is not found, nor what held tables compute on it") {
  const std::vector<TokenId> tokens = counting(12);
  Kv kv = pool(8);
  KvTable gone = compute(kv, std::span(tokens).first(4));
  KvTable held;
  kv.share(tokens, kv.find(tokens, 12), held);
  kv.take(2, held);
  kv.give_back(gone);
  kv.forget();
  CHECK(kv.cached() == 0);
  kv.commit(tokens, 12, held);
  CHECK(kv.find(tokens, 12) == KvPrefix{});
  CHECK(check(kv, {&held}) == "");
  KvTable fresh = compute(kv, tokens);
  CHECK(kv.find(tokens, 12) == KvPrefix{3, 0});
  kv.give_back(held);
  CHECK(kv.find(tokens, 12) == KvPrefix{3, 0});
  kv.give_back(fresh);
  CHECK(check(kv, {}) == "");
}

/// Whatever sequences come, grow, share and go: what is found holds what it was found for, and
/// counts are right after each deed.
TEST_CASE("any deeds in any order keep every block's content and count") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](std::uint32_t below) {
      return static_cast<std::int32_t>(random() % below);
    };
    const std::int32_t blocks = 3 + pick(20);
    Kv kv = pool(blocks);
    struct Held {
      std::vector<TokenId> tokens;
      std::int32_t computed = 0;
      KvTable table;
    };
    std::map<int, Held> held;
    // By block and row: what stands there, the whole sequence up to it.
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TokenId>> rows;
    const auto row_of = [](const Held& h, std::int32_t position) {
      return std::vector<TokenId>(h.tokens.begin(), h.tokens.begin() + position + 1);
    };
    std::size_t shared = 0;
    for (int deed = 0; deed < 400; ++deed) {
      if (pick(3) == 0) {
        Held next;
        for (std::int32_t n = 1 + pick(24); n > 0; --n) next.tokens.push_back(pick(2));
        const KvPrefix found =
            kv.find(next.tokens, static_cast<std::int32_t>(next.tokens.size()) - 1);
        if (found.idle > kv.available()) FAIL("more is idle than available");
        kv.share(next.tokens, found, next.table);
        next.computed = found.blocks * kSize;
        shared += next.table.blocks.size();
        for (std::int32_t p = 0; p < next.computed; ++p)
          REQUIRE(rows[{next.table.blocks[static_cast<std::size_t>(p / kSize)], p % kSize}] ==
                  row_of(next, p));
        held[deed] = std::move(next);
      } else if (!held.empty()) {
        auto it = std::next(held.begin(), pick(static_cast<std::uint32_t>(held.size())));
        Held& h = it->second;
        const std::int32_t left = static_cast<std::int32_t>(h.tokens.size()) - h.computed;
        const std::int32_t end = h.computed + pick(static_cast<std::uint32_t>(left) + 1);
        const std::int32_t lacks =
            (end + kSize - 1) / kSize - static_cast<std::int32_t>(h.table.blocks.size());
        if (pick(4) == 0 || lacks > kv.available()) {
          kv.give_back(h.table);
          held.erase(it);
        } else {
          kv.take(std::max(0, lacks), h.table);
          for (std::int32_t p = h.computed; p < end; ++p)
            rows[{h.table.blocks[static_cast<std::size_t>(p / kSize)], p % kSize}] = row_of(h, p);
          // Some steps fail: they have written, and nothing counts.
          if (pick(4) > 0) {
            kv.commit(h.tokens, end, h.table);
            h.computed = end;
          }
        }
      }
      if (pick(100) == 0) kv.forget();
      std::vector<const KvTable*> tables;
      for (const auto& [key, h] : held) tables.push_back(&h.table);
      REQUIRE(kv.violation(tables) == "");
    }
    CHECK(shared > 0);
  }
}

TEST_CASE("a miscount is noticed") {
  const std::vector<TokenId> tokens = counting(8);
  Kv kv = pool(4);
  KvTable a = compute(kv, tokens), b = compute(kv, tokens);
  CHECK(check(kv, {&a, &b}) == "");
  CHECK(check(kv, {&a}) != "");
  KvTable writer = b;
  writer.written = 1;  // it would write to what a holds
  CHECK(check(kv, {&a, &writer}) != "");
  KvTable stranger = b;
  stranger.slot = a.slot;
  CHECK(check(kv, {&a, &stranger}) != "");
}
