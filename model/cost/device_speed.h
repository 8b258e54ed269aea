#pragma once

#include <string_view>
#include <vector>

#include "model/cost/work.h"

/// How long a device takes for a Work: never less than its ceilings allow, and expectedly.
namespace troupe {

/// What a device can do at best. 0: it cannot, or nobody has said.
struct Ceilings {
  double memory = 0;   ///< bytes a second read from its memory
  double fma = 0;      ///< operations a second: float32 multiply-adds without matrix units
  double bf16 = 0;     ///< of matrix units, dense
  double fp8 = 0;      ///< of matrix units, dense; 0: FP8 weights are multiplied as bf16
  double network = 0;  ///< bytes a second, each way, to devices of other nodes
  double link = 0;     ///< to other devices of the node; 0: they share its memory
  bool operator==(const Ceilings&) const = default;
};

/// Which of a GPU's units make products: the numerics say.
enum class Arithmetic : std::uint8_t { kFma, kBf16, kFp8 };
std::string_view to_string(Arithmetic arithmetic);

/// A message to another node, one way, where nothing polls: an actor's turn, a thread that wakes.
inline constexpr double kCpuHopSeconds = 75e-6;

/// What of the ceilings is expected to be reached, and what each op and hop takes beside.
struct Efficiency {
  double memory = 0.8;
  double compute = 0.65;
  double wire = 0.75;
  double call_s = 3e-6;  ///< an op
  double matrix_s = 0;   ///< each matrix of a product
  double hop_s = 25e-6;  ///< a message to another device, one way
  bool operator==(const Efficiency&) const = default;
};

/// One product of a kind, measured: seconds for each number of the matrix, by rows.
struct ProductSpeed {
  ProductKind kind;
  struct Point {
    double rows = 0, element_s = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points;  ///< rising rows
  bool operator==(const ProductSpeed&) const = default;
};

/// Attention, measured: a row takes what `rate` makes of the positions that it sees and of some
/// more, for what it costs whatever it sees.
struct AttentionSpeed {
  double rate = 0;  ///< operations a second; 0: not measured
  double more_positions = 0;
  bool operator==(const AttentionSpeed&) const = default;
};
/// Sequences that kAttentionBatch of them are measured with.
inline constexpr double kAttentionBatch = 32;

/// A device. What was measured counts before what efficiency makes of the ceilings.
struct DeviceSpeed {
  Ceilings ceilings;
  Arithmetic arithmetic = Arithmetic::kBf16;
  Efficiency efficiency;
  std::vector<ProductSpeed> products;
  AttentionSpeed attention_one;     ///< one row of one sequence
  AttentionSpeed attention_batch;   ///< of each of kAttentionBatch sequences
  AttentionSpeed attention_prompt;  ///< many rows of a sequence
  bool operator==(const DeviceSpeed&) const = default;
};

/// Operations a second at best for that kind.
double best_rate(const DeviceSpeed& device, const ProductKind& kind);

/// The least that memory and arithmetic need, each on its own.
double memory_seconds(const DeviceSpeed& device, const Work& work);
double compute_seconds(const DeviceSpeed& device, const Work& work);
/// What it is expected to take. Products and attention run one after the other.
double expected_seconds(const DeviceSpeed& device, const Work& work);

/// What a device sends and gets in a step; the larger of the two ways counts.
struct WireBytes {
  double network_out = 0, network_in = 0, link_out = 0, link_in = 0;
  void add(const WireBytes& other, double times = 1);
};
double wire_seconds(const DeviceSpeed& device, const WireBytes& wire);

}  // namespace troupe
