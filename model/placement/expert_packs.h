#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// The devices of a layout, as indices: nodes of devices and how fast each device is.
struct PackDevices {
  std::vector<std::size_t> node;  ///< of each device
  std::vector<double> speed;      ///< of each device, above 0
  std::size_t nodes = 0;
};

/// The copies of one layer's experts on devices while they are being arranged: every copy of an
/// expert carries an equal share of its load. Experts and devices are indices.
class ExpertPacks {
 public:
  /// `load` of each expert, and how many copies it is to have in all.
  ExpertPacks(const PackDevices& devices, const std::vector<float>& load,
              const std::vector<std::size_t>& copies);

  void put(std::size_t expert, std::size_t device);

  /// Deals out the copies that have not been put, the heaviest first: to a device with room and
  /// without the expert, on a node without it if there is one, to the one that is done first.
  /// `room` slots a device, as many as copies in all. Two copies may meet on a device; separate()
  /// follows.
  void pack(const std::vector<std::size_t>& room);
  /// The same without a look at loads: copies of an expert go to devices in turn, so that none has
  /// two where no expert has more copies than there are devices.
  void deal(const std::vector<std::size_t>& room);

  /// Swaps copies until no device has two of an expert; false if swaps alone do not get there.
  bool separate();
  /// Swaps copies between nodes while that adds to the nodes that experts are on, the swaps that
  /// unbalance least first.
  void spread();
  /// Swaps copies while the device that is done last gets done sooner and no expert loses a node,
  /// until it is done by `done_by`. `within_nodes`: only between devices of one node.
  void even_out(bool within_nodes, double done_by = 0);

  /// When the last device is done: its load over its speed.
  double last_done() const;
  /// Experts that are on fewer nodes than their copies could be.
  std::size_t crowded() const;
  /// Experts of each device, in the order of their slots.
  const std::vector<std::vector<std::size_t>>& on() const { return on_; }

 private:
  /// Copy `slot` of `device`.
  struct Place {
    std::size_t device = 0;
    std::size_t slot = 0;
  };
  struct Swap {
    Place a, b;
    int gain = 0;     // of nodes that experts are on
    double cost = 0;  // change of the sum of squares of the times of the two devices
  };

  bool has(std::size_t device, std::size_t expert) const;
  std::size_t on_node(std::size_t expert, std::size_t node) const;
  std::size_t nodes_of(std::size_t expert) const;
  double time(std::size_t device) const { return load_[device] / devices_.speed[device]; }
  std::size_t expert_at(const Place& p) const { return on_[p.device][p.slot]; }
  /// What exchanging the two copies brings; neither expert may come to a device that has it.
  bool may_swap(const Place& a, const Place& b) const;
  Swap weigh(const Place& a, const Place& b) const;
  void swap(const Place& a, const Place& b);
  /// The better of two swaps: more nodes, then less cost, then the earlier found.
  static bool better(const Swap& x, const Swap& y) {
    return x.gain != y.gain ? x.gain > y.gain : x.cost < y.cost;
  }
  bool spread_expert(std::size_t expert);
  bool separate_copy(const Place& copy);
  bool relieve(const std::vector<std::size_t>& devices);

  const PackDevices& devices_;
  std::vector<double> share_;                      // of each copy of each expert
  std::vector<std::size_t> copies_;                // of each expert
  std::vector<std::vector<std::size_t>> on_;       // experts of each device
  std::vector<std::vector<std::size_t>> holders_;  // devices of each expert, with repeats
  std::vector<double> load_;                       // of each device
  std::int64_t looks_left_ = 0;                    // swaps that may still be weighed
};

}  // namespace troupe
