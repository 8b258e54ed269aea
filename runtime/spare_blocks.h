#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Memory that takes long to be had and to be given up, like what a driver pins: a block that
/// nobody holds any more is given to who next asks for about as much. Those that are held outlive
/// it. Thread-safe.
class SpareBlocks : public std::enable_shared_from_this<SpareBlocks> {
 public:
  /// A block of so many bytes; null: there is none.
  using Make = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

  /// Keeps about that much that nobody holds.
  static std::shared_ptr<SpareBlocks> make(std::size_t bytes_max) {
    return std::shared_ptr<SpareBlocks>(new SpareBlocks(bytes_max));
  }
  /// At least so many bytes, not cleared; what `make` says, or throws, if it has to be asked. What
  /// is kept beyond the most goes here, the longest unused first: never where a block is let go,
  /// which may be on any thread.
  std::shared_ptr<std::byte> take(std::size_t bytes, const Make& make);
  /// What nobody holds goes.
  void clear();

 private:
  struct Spare {
    std::uint64_t since;  ///< when it came back, counted
    std::shared_ptr<std::byte> block;
  };
  using Blocks = std::vector<std::shared_ptr<std::byte>>;
  explicit SpareBlocks(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  void give_back(std::shared_ptr<std::byte> block, std::size_t bytes);
  Blocks too_many();

  const std::size_t bytes_max_;
  std::mutex mutex_;
  std::map<std::size_t, std::deque<Spare>> spare_;  // by size, as they came back; guarded by mutex_
  std::size_t spare_bytes_ = 0;                     // guarded by mutex_
  std::uint64_t returns_ = 0;                       // guarded by mutex_
};

}  // namespace troupe
