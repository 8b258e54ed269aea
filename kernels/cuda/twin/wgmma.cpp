#include "kernels/cuda/twin/wgmma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cuda/twin/ptx.h"
#include "runtime/bf16.h"

namespace troupe::kernels::cuda_twin {
namespace {

constexpr int kM = 64, kK = 16;
constexpr int kLanes = ptx::kGroupLanes;

/// A matrix in shared memory, as PTX's descriptor has it.
struct Matrix {
  explicit Matrix(std::uint64_t bits)
      : at((bits & 0x3fff) << 4), apart((bits >> 16 & 0x3fff) << 4) {}
  std::size_t at, apart;

  /// Sixteen bytes of row `row`, `c` times sixteen behind where it begins: address bits 4 to 6 are
  /// turned by bits 7 to 9.
  std::size_t quad(std::size_t row, std::size_t c) const {
    const std::size_t place = at + row * 128 + c * 16;
    return place ^ (place >> 7 & 7) << 4;
  }
};

std::array<double, 8> numbers_at(Machine& machine, std::size_t place) {
  std::uint16_t halves[8];
  machine.read_matrix(place, reinterpret_cast<std::byte*>(halves));
  std::array<double, 8> numbers;
  for (std::size_t i = 0; i < 8; ++i) numbers[i] = static_cast<double>(to_float(Bf16{halves[i]}));
  return numbers;
}

using MatrixRows = std::vector<std::array<double, kK>>;

MatrixRows rows_at(Machine& machine, const Matrix& a) {
  MatrixRows rows(kM);
  for (std::size_t row = 0; row < kM; ++row)
    for (std::size_t c = 0; c < 2; ++c) {
      const auto numbers = numbers_at(machine, a.quad(row, c));
      std::copy(numbers.begin(), numbers.end(), rows[row].begin() + c * 8);
    }
  return rows;
}

/// As an mma takes them, a warp's sixteen.
MatrixRows rows_of(const std::vector<std::uint32_t>& held) {
  MatrixRows rows(kM);
  for (std::size_t l = 0; l < kLanes; ++l)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t e = 0; e < 2; ++e)
        rows[l / 32 * 16 + l % 32 / 4 + i % 2 * 8][l % 4 * 2 + i / 2 * 8 + e] = static_cast<double>(
            to_float(Bf16{static_cast<std::uint16_t>(held[l * 4 + i] >> (16 * e))}));
  return rows;
}

}  // namespace

void TensorWork::give(Machine& machine, void* const* lanes) {
  const auto& first = *static_cast<const Lane*>(lanes[0]);
  for (int l = 0; l < kLanes; ++l) {
    const auto& lane = *static_cast<const Lane*>(lanes[l]);
    if (lane.a != first.a || lane.b != first.b)
      machine.wrong("gives tensor cores another matrix than its neighbours");
  }
  if (!fenced_) machine.wrong("gives tensor cores work without a fence before its group");
  std::vector<std::uint32_t> held;
  for (int l = 0; l < kLanes && first.held != nullptr; ++l) {
    const std::uint32_t* const of_lane = static_cast<const Lane*>(lanes[l])->held;
    held.insert(held.end(), of_lane, of_lane + 4);
  }
  given_.push_back(
      {std::move(held), first.a, first.b, first.by_rows, false, group_, sum_of(lanes)});
}

/// Where sums are while they are the tensor cores'.
std::size_t TensorWork::sum_of(void* const* lanes) {
  const auto lane = [&](int l) -> const Lane& { return *static_cast<const Lane*>(lanes[l]); };
  for (std::size_t i = 0; i < sums_.size(); ++i)
    if (!sums_[i].lanes.empty() && sums_[i].lanes[0] == lane(0).c) return i;
  Sum& sum = sums_.emplace_back();
  sum.count = lane(0).count;
  for (int l = 0; l < kLanes; ++l) {
    float* const c = lane(l).c;
    sum.lanes.push_back(c);
    sum.numbers.insert(sum.numbers.end(), c, c + sum.count);
    std::fill(c, c + sum.count, std::numeric_limits<float>::quiet_NaN());
  }
  return sums_.size() - 1;
}

void TensorWork::commit(Machine& machine) {
  ++group_;
  fenced_ = false;
  const std::uint64_t some = machine.random() % 3;  // at once, later, or as it comes
  for (Given& given : given_) {
    if (given.done) continue;
    if (some == 1 || (some == 2 && machine.random() % 4 == 0)) break;
    compute(machine, given);
  }
}

void TensorWork::wait(Machine& machine, int pending) {
  for (Given& given : given_)
    if (!given.done && given.group < group_ - pending) compute(machine, given);
  std::erase_if(given_, [&](const Given& given) { return given.group < group_ - pending; });
  fenced_ = false;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    Sum& sum = sums_[i];
    const auto of_it = [&](const Given& given) { return given.sum == i; };
    if (sum.lanes.empty() || std::any_of(given_.begin(), given_.end(), of_it)) continue;
    for (std::size_t l = 0; l < sum.lanes.size(); ++l)
      std::copy_n(sum.numbers.begin() + static_cast<std::ptrdiff_t>(l) * sum.count, sum.count,
                  sum.lanes[l]);
    sum.lanes.clear();
  }
  if (given_.empty()) sums_.clear();
}

void TensorWork::compute(Machine& machine, Given& given) {
  given.done = true;
  Sum& sum = sums_[given.sum];
  const Matrix b(given.b);
  const int columns = sum.count * 2;
  const MatrixRows rows =
      given.held.empty() ? rows_at(machine, Matrix(given.a)) : rows_of(given.held);
  std::vector<std::array<double, kK>> of_columns(static_cast<std::size_t>(columns));
  for (std::size_t n = 0; given.by_rows && n < of_columns.size(); ++n)
    for (std::size_t c = 0; c < 2; ++c) {
      const auto numbers = numbers_at(machine, b.quad(n, c));
      std::copy(numbers.begin(), numbers.end(), of_columns[n].begin() + c * 8);
    }
  for (std::size_t k = 0; !given.by_rows && k < kK; ++k)
    for (std::size_t c = 0; c < of_columns.size() / 8; ++c) {
      Matrix block = b;
      block.at += c / 8 * b.apart;
      const auto numbers = numbers_at(machine, block.quad(k, c % 8));
      for (std::size_t i = 0; i < 8; ++i) of_columns[c * 8 + i][k] = numbers[i];
    }
  // A warp has sixteen rows, as of an mma; eight columns are four numbers of each lane.
  for (std::size_t n = 0; n < of_columns.size() / 8; ++n)
    for (std::size_t warp = 0; warp < kM / 16; ++warp) {
      ptx::MmaOperands with;
      for (std::size_t i = 0; i < 16; ++i)
        std::copy(rows[warp * 16 + i].begin(), rows[warp * 16 + i].end(), with.a[i]);
      for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t k = 0; k < kK; ++k) with.b[k][i] = of_columns[n * 8 + i][k];
      float c[16][8];
      const auto held = [&](std::size_t row, std::size_t column) -> float& {
        const std::size_t lane = warp * 32 + row % 8 * 4 + column / 2;
        return sum
            .numbers[lane * static_cast<std::size_t>(sum.count) + n * 4 + row / 8 * 2 + column % 2];
      };
      for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t j = 0; j < 8; ++j) c[i][j] = held(i, j);
      ptx::add_products(machine.mma_order(), with, c);
      for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t j = 0; j < 8; ++j) held(i, j) = c[i][j];
    }
}

TensorWork& Machine::tensor_work() {
  const auto group = static_cast<std::size_t>(thread_ / ptx::kGroupLanes);
  while (tensor_work_.size() <= group) tensor_work_.push_back(std::make_shared<TensorWork>());
  return *tensor_work_[group];
}

std::size_t Machine::place_of(const std::byte* shared) const {
  return static_cast<std::size_t>(shared - reinterpret_cast<const std::byte*>(shared_.data()));
}

void Machine::read_matrix(std::size_t at, std::byte* to) {
  constexpr std::size_t kBytes = 16;
  std::memset(to, 0xff, kBytes);
  if (at + kBytes > program_.shared_bytes)
    return wrong("has tensor cores read byte " + std::to_string(at) + " of shared memory");
  read_words(at, kBytes, true);
  for (std::size_t w = at / 4; w < (at + kBytes) / 4; ++w)
    if (words_[w].write > fenced_of(words_[w].writer))
      wrong("has tensor cores read word " + std::to_string(w) + " of shared memory, which thread " +
            std::to_string(words_[w].writer) + " has written and not fenced");
  std::memcpy(to, shared_.data() + at / 4, kBytes);
}

namespace ptx {

void wgmma_of_group(Machine& machine, void* const* lanes) {
  machine.tensor_work().give(machine, lanes);
}
void wgmma_fence_of_group(Machine& machine, void* const*) { machine.tensor_work().fence(); }
void wgmma_commit_of_group(Machine& machine, void* const*) {
  machine.tensor_work().commit(machine);
}
void wgmma_wait_of_group(Machine& machine, void* const* lanes) {
  machine.tensor_work().wait(machine, *static_cast<const int*>(lanes[0]));
}

}  // namespace ptx
}  // namespace troupe::kernels::cuda_twin
