#include "actors/device/speed_probe.h"

#include <cassert>
#include <cstdint>
#include <vector>

#include "kernels/linear.h"
#include "runtime/dtype.h"

namespace troupe {
namespace {

constexpr std::int64_t kIn = 1024, kOut = 64;
constexpr int kProducts = 8;

/// Numerics that every accelerator computes. Of nothing but zeros.
kernels::Weight zeros() {
  auto packer =
      kernels::WeightPacker::begin(Numerics::kBf16, {kernels::Codes::kBf16, kOut, kIn, {}});
  assert(packer.ok());
  const std::vector<std::byte> codes(static_cast<std::size_t>(kOut * kIn) * sizeof(std::uint16_t));
  packer->add(codes.data(), kOut);
  return packer->take();
}

kernels::Stream::Options of_bf16(kernels::Stream::Options options) {
  options.numerics = Numerics::kBf16;
  return options;
}

}  // namespace

SpeedProbe::SpeedProbe(const kernels::Stream::Options& accelerator)
    : stream_(of_bf16(accelerator)) {
  const kernels::Weight packed = zeros();
  weight_ = packed.placed(stream_.place(packed.memory()));
  const std::vector<float> row(static_cast<std::size_t>(kIn));
  x_ = stream_.memory(row.size() * sizeof(float));
  stream_.write(x_.get(), row.data(), row.size() * sizeof(float));
  y_ = stream_.memory(static_cast<std::size_t>(kOut) * sizeof(float));
}

void SpeedProbe::multiply() {
  const kernels::Stream::Scope scope(stream_);
  const auto x = stream_.device_tensor(x_.get(), DType::kF32, 1, kIn);
  const auto y = stream_.device_tensor(y_.get(), DType::kF32, 1, kOut);
  const kernels::Activation row = prepare(stream_, x, weight_);
  for (int i = 0; i < kProducts; ++i) linear(stream_, weight_, row, y);
}

/// What goes before keeps it busy while the host queues what counts.
Duration SpeedProbe::run() {
  multiply();
  multiply();
  return stream_.accelerator()->timed([this] { multiply(); });
}

}  // namespace troupe
