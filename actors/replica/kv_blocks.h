#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/ids.h"
#include "runtime/sha256.h"

namespace troupe {

/// The blocks that a sequence holds, one reference each.
struct KvTable {
  std::vector<std::int32_t> blocks;  ///< of positions from 0 on
  std::int32_t slot = -1;            ///< no other table that holds blocks has the same
  std::int32_t told = 0;             ///< leading blocks that every shard knows of
  std::int32_t written = 0;          ///< leading blocks that nobody writes to any more
  std::uint64_t age = 0;             ///< KvBlocks' when it got its first one
};

/// Stands for all that the rows of a full block of a sequence depend on: the identity, and all
/// tokens up to the block's last one. SHA-256 of the key before and the block's tokens, the first
/// one behind SHA-256 of the identity: whoever sends tokens cannot make two that have the same.
using KvKey = Sha256Digest;
/// Those of a sequence's leading full blocks.
using KvKeys = std::span<const KvKey>;

/// What of a sequence is there already.
struct KvPrefix {
  std::int32_t blocks = 0;  ///< full ones, from position 0 on
  std::int32_t idle = 0;    ///< of these, those that nobody holds: sharing them takes them away
  bool operator==(const KvPrefix&) const = default;
};

/// The KV blocks of a replica. Every shard's pool has the same blocks, so one number stands for one
/// block of each; a model with several kinds of layer will have one of these a kind.
///
///     free ── take ──► held ── give_back ──► free, or idle if its content has a key
///                       ▲                      │
///                       └─────── share ────────┘ ── take, the longest idle first ──► held
///
/// A block is shared only once it is full and the step that filled it has come back. It is found by
/// its key, whoever wrote the tokens: an answer is found in the prompt of the next turn.
class KvBlocks {
 public:
  struct Options {
    std::int32_t blocks = 0;
    std::int32_t block_size = 1;  ///< positions
    bool keep = false;            ///< blocks that nobody holds, to be found again
    /// What else changes rows: the model, the numerics and the cache's type.
    std::string_view identity = {};
  };
  explicit KvBlocks(const Options& options);

  std::int32_t total() const { return static_cast<std::int32_t>(blocks_.size()); }
  /// Held by a sequence.
  std::int32_t used() const { return total() - available(); }
  /// Held by nobody, and found again by what they hold.
  std::int32_t cached() const { return static_cast<std::int32_t>(idle_.size()); }
  std::int32_t available() const { return static_cast<std::int32_t>(free_.size()) + cached(); }
  bool keeps() const { return keep_; }

  /// Makes the keys that a sequence with these tokens lacks; none, if blocks are not kept.
  void extend(std::span<const TokenId> tokens, std::vector<KvKey>& keys);
  /// The leading blocks of a sequence that are there, within its first `positions_max` positions.
  KvPrefix find(KvKeys sequence, std::int32_t positions_max) const;
  /// Gives an empty table what find() tells of; it must be as it was then.
  void share(KvKeys sequence, KvPrefix prefix, KvTable& table);
  /// Appends `count` blocks to the table; as many must be available.
  void take(std::int32_t count, KvTable& table);
  /// The first `positions` rows of the sequence are in its blocks, and right.
  void commit(KvKeys sequence, std::int32_t positions, KvTable& table);
  /// Gives all of them back and clears the table.
  void give_back(KvTable& table);
  /// How many more are available when all of these have given theirs back.
  std::int32_t freed_by(std::span<const KvTable* const> tables) const;

  /// Nothing that was computed so far is found again, nor what follows it in tables that are held.
  void forget();

  /// See Replica::violation(). `tables`: all that hold blocks.
  std::string violation(std::span<const KvTable* const> tables) const;

 private:
  struct Block {
    std::int32_t holders = 0;
    bool keyed = false;  ///< by_key_ has it
    KvKey key{};
    std::uint64_t idle_since = 0;  ///< its key in idle_; 0: it is not there
  };
  struct KeyHash {
    std::size_t operator()(const KvKey& key) const {
      std::size_t hash = 0;
      std::memcpy(&hash, key.data(), sizeof hash);
      return hash;
    }
  };

  void open(KvTable& table);
  std::int32_t take_one();
  void unkey(Block& block);
  std::string violation_of_block(std::int32_t block, std::int32_t holders) const;
  std::string violation_of(std::span<const KvTable* const> tables) const;

  std::int32_t block_size_;
  bool keep_;
  Sha256 hash_;
  KvKey root_{};  ///< the key of nothing
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;      ///< used from the back
  std::map<std::uint64_t, std::int32_t> idle_;  ///< the longest idle first
  std::unordered_map<KvKey, std::int32_t, KeyHash> by_key_;
  std::vector<std::int32_t> free_slots_;
  std::int32_t slots_ = 0;
  std::uint64_t next_idle_ = 1;
  std::uint64_t age_ = 0;  ///< raised by forget()
};

}  // namespace troupe
