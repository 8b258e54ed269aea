#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "actors/head/open_journal.h"
#include "actors/router/request_desk.h"
#include "tests/actors/head/forgetful_files.h"
#include "tests/sim/history.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// The journal in a head's state folder, by the product's own reader and writer of its files. Its
/// disk is slow, full, does not sync or hangs now and then, and keeps no more than it must when the
/// power goes. It outlives the processes.
class SimJournal final : public JournalStore {
 public:
  SimJournal(std::uint64_t seed, Mutation mutation);

  /// Who hears of what is written: a Router, or a standby.
  struct Owner {
    std::function<void(JournalKept)> kept;
    std::function<void(JournalFailed)> failed;
  };
  struct Found {
    std::shared_ptr<Journal> journal;
    std::uint64_t first_file = 1;  ///< of this life
  };
  /// A head begins: what it finds there.
  Found open(SimHost& host, Owner owner, Incarnation head, KnownState& known);
  /// A standby does: the number of its first file.
  std::uint64_t follow(SimHost& host, Owner owner);
  void learn_cluster(const std::string& cluster) { disk_->learn_cluster(cluster); }
  void learn_numerics(Numerics numerics);
  /// The process has ended. With the power, what was not synced is there, or not, or torn.
  void close(bool power_cut);

  // JournalStore
  void keep(KeepRecords records) override;
  void note(const JournalNote& note) override;

  /// The head goes on without it, which may be a while longer than the disk fails.
  bool distrusted() const { return distrusted_; }
  /// What the reader of its files does not take; empty: nothing.
  const std::string& broken() const { return broken_; }

 private:
  Status before(const std::string& operation);
  void begin(SimHost& host, Owner owner);
  void write_next();
  void write(Duration rest);
  void tell(const Status& written, std::uint64_t file, std::uint64_t mark, bool awaited);
  bool tells_early(const KeepRecords& records) const;
  std::uint64_t pick(std::uint64_t low, std::uint64_t high) {
    return low + random_() % (high - low + 1);
  }

  std::mt19937_64 random_;  // of its own, so that it changes nothing else of a history
  const Mutation mutation_;
  const bool slow_;  // all the time
  std::shared_ptr<testing::ForgetfulFiles> files_;
  std::shared_ptr<testing::ForgetfulFiles> cut_;  // as the power left it, in the middle of a write
  bool distrusted_ = false;
  std::string broken_;
  // Of the process.
  SimHost* host_ = nullptr;
  Owner owner_;
  std::unique_ptr<JournalDisk> disk_;
  std::deque<KeepRecords> waiting_;
  bool writes_ = false;  // one after the other
  bool failed_ = false;
  std::optional<std::uint64_t> fails_in_;  // so many operations
};

}  // namespace troupe::sim
