#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "actors/router/journal.h"
#include "actors/router/request_desk.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// The journal in a head's state folder: written at the pace of a disk that is slow, full or hangs
/// now and then, cut off anywhere when the power goes. It outlives the processes.
class SimJournal final : public JournalStore {
 public:
  explicit SimJournal(std::uint64_t seed) : random_(seed), slow_(pick(1, 3) == 1) {}

  /// Who hears of what is written: a Router, or a standby.
  struct Owner {
    std::function<void(JournalKept)> kept;
    std::function<void(JournalFailed)> failed;
  };
  /// A process begins: what it finds there, and the number of its first file.
  std::shared_ptr<Journal> open(SimHost& host, Owner owner);
  std::uint64_t next_file() const { return files_.empty() ? 1 : files_.rbegin()->first + 1; }
  /// It ends. Of what it has not heard of, the beginning may be on the disk.
  void close();

  // JournalStore
  void keep(KeepRecords records) override;
  void note(const JournalNote& note) override;

  /// The head goes on without it, which may be a while longer than the disk fails.
  bool distrusted() const { return distrusted_; }
  /// A record that the codec does not take, or makes another of; empty: none.
  const std::string& broken() const { return broken_; }

 private:
  using File = std::vector<std::vector<std::byte>>;
  void write(const KeepRecords& records, std::size_t count);
  void write_next();
  std::uint64_t pick(std::uint64_t low, std::uint64_t high) {
    return low + random_() % (high - low + 1);
  }

  std::mt19937_64 random_;  // of its own, so that it changes nothing else of a history
  bool slow_;               // all the time
  std::map<std::uint64_t, File> files_;
  bool distrusted_ = false;
  std::string broken_;
  // Of the process.
  SimHost* host_ = nullptr;
  Owner owner_;
  std::deque<KeepRecords> waiting_;
  bool failed_ = false;
};

}  // namespace troupe::sim
