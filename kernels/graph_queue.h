#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/work.h"

namespace troupe::kernels {

/// Work for a device in order, kept back until it is a batch: to give a GPU a kernel costs the host
/// some microseconds, a graph of hundreds not much more. A batch whose kernels and copies come one
/// after the other as they did in one before goes as the graph of that one, once what has other
/// arguments, grids or addresses is changed in it.
///
///     add add add … ── flush ──► new: each by itself
///                               known: captured, or changed ──► one launch
///
/// The first time work goes by itself: much never comes again.
class GraphQueue {
 public:
  /// A batch as the device keeps it.
  class Graph {
   public:
    virtual ~Graph() = default;
    /// From the next launch on.
    virtual void change(std::size_t at, const Work& work) = 0;
    virtual void launch() = 0;
  };
  class Device {
   public:
    virtual ~Device() = default;
    virtual void run(const Work& work) = 0;
    virtual std::unique_ptr<Graph> capture(std::span<const Work> batch) = 0;
  };

  static constexpr std::size_t kBatchMax =
      512;                                     ///< what is more goes while the rest is put together
  static constexpr std::size_t kGraphMin = 4;  ///< fewer go by themselves
  static constexpr std::size_t kKnownMax = 64;  ///< the one not used for longest is forgotten

  /// What a kernel's arguments are is copied.
  void add(const Work& work);
  /// Before all others of the batch.
  void add_first(const Work& copy) { batch_.works.insert(batch_.works.begin(), copy); }
  bool full() const { return batch_.works.size() >= kBatchMax; }
  /// `singly`: it is not put into a graph, nor known from then on.
  void flush(Device& device, bool singly = false);

  struct Counts {
    std::uint64_t kernels = 0;   ///< that were added
    std::uint64_t launches = 0;  ///< of graphs, and of kernels and copies by themselves
    std::uint64_t graphs = 0;    ///< of those, of graphs
    std::uint64_t captures = 0;
    std::uint64_t changes = 0;  ///< of work in graphs
  };
  const Counts& counts() const { return counts_; }

 private:
  /// Arguments lie behind each other in `arguments`, which grows only while no work points to it.
  struct Batch {
    std::vector<Work> works;
    std::vector<std::byte> arguments;
    void point();
  };
  struct Known {
    Batch last;
    std::unique_ptr<Graph> graph;  ///< from the second time on
    std::uint64_t used = 0;
  };
  void put_into(Known& known, Device& device);
  Known& known();

  Batch batch_;
  std::map<std::uint64_t, Known> known_;  ///< by what comes after what
  std::uint64_t flushes_ = 0;
  Counts counts_;
};

}  // namespace troupe::kernels
