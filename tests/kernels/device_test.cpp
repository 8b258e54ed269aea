/// What any accelerator must do, a GPU or its twin: work runs late and in order, memory is used
/// again, graphs are changed. (What only the twin can be asked is in twin_device_test.cpp.)
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "device_under_test.h"
#include "kernels/known_answers.h"
#include "kernels/residual.h"
#include "runtime/float_mode.h"
#include "runtime/split_mix.h"

namespace troupe::kernels {
namespace {

constexpr std::int64_t kCols = 64;
constexpr std::uint64_t kMemoryBytes = 64u << 20;
constexpr std::uint64_t kSeeds = 20;  ///< of a twin, in which order things are done

std::shared_ptr<Accelerator> open_tested(std::uint64_t seed = 0,
                                         std::size_t staging_bytes = Accelerator::kStagingBytes) {
  set_float_mode();
  AcceleratorOptions options{.memory_bytes = kMemoryBytes, .seed = seed};
  options.staging_bytes = staging_bytes;
  auto device = device_under_test()->accelerator(options);
  REQUIRE_MESSAGE(device.ok(), (device.ok() ? "" : device.error().message));
  return std::move(*device);
}

/// A device and a stream of it.
struct Tested {
  explicit Tested(std::uint64_t seed = 0, std::size_t staging_bytes = Accelerator::kStagingBytes)
      : device(open_tested(seed, staging_bytes)),
        stream({.numerics = Numerics::kBf16,
                .backend = device_under_test(),
                .accelerator = device.get()}) {}

  /// Rows of kCols numbers.
  std::shared_ptr<std::byte> rows(std::int64_t count) const {
    return device->memory(static_cast<std::size_t>(count * kCols) * sizeof(float));
  }
  void write(const std::shared_ptr<std::byte>& to, const std::vector<float>& values) {
    stream.write(to.get(), values.data(), values.size() * sizeof(float));
  }
  std::vector<float> read(const std::shared_ptr<std::byte>& from, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count * kCols));
    stream.read(values.data(), from.get(), values.size() * sizeof(float));
    return values;
  }
  /// y += x, so many rows.
  void add(const std::shared_ptr<std::byte>& x, const std::shared_ptr<std::byte>& y,
           std::int64_t count) {
    const auto at = [&](const auto& memory) {
      return stream.device_tensor(memory.get(), DType::kF32, count, kCols);
    };
    residual_add(stream, at(x), at(y));
  }

  std::shared_ptr<Accelerator> device;
  Stream stream;
};

std::vector<float> all(std::int64_t rows, float value) {
  return std::vector<float>(static_cast<std::size_t>(rows * kCols), value);
}

std::vector<std::byte> drawn(std::size_t bytes, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<std::byte> some(bytes);
  for (std::byte& b : some) b = static_cast<std::byte>(random.next() & 0xff);
  return some;
}

TEST_CASE("what a device is given runs late and in order, and host bytes may go at once") {
  if (device_under_test() == nullptr) return;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Tested tested(seed);
    const auto x = tested.rows(64), y = tested.rows(64);
    {
      std::vector<float> ones = all(64, 1);
      tested.write(x, ones);
      tested.write(y, ones);
      ones.assign(ones.size(), 7);
    }
    for (int i = 0; i < 40; ++i) tested.add(x, y, 64);
    CHECK(tested.read(y, 64) == all(64, 41));
  }
}

TEST_CASE("memory that goes while work on it is queued is not somebody else's before that ran") {
  if (device_under_test() == nullptr) return;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Tested tested(seed);
    auto x = tested.rows(64);
    const auto y = tested.rows(64);
    tested.write(y, all(64, 0));
    for (int i = 0; i < 30; ++i) {
      tested.write(x, all(64, static_cast<float>(i)));
      tested.add(x, y, 64);
      x = tested.rows(64);
      // Numbers for what was there, if it were free.
      tested.device->upload(x.get(), std::vector<std::byte>(64 * kCols * sizeof(float)));
    }
    CHECK(tested.read(y, 64) == all(64, 29 * 30 / 2));
  }
}

TEST_CASE("what travels goes straight, and is not somebody else's before its copy ran") {
  if (device_under_test() == nullptr) return;
  const std::size_t bytes = all(64, 0).size() * sizeof(float);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Tested tested(seed);
    Stream& stream = tested.stream;
    const auto filled = [&](float value) {
      auto buffer = stream.host_buffer(bytes);
      std::fill_n(buffer->as<float>(), 64 * kCols, value);
      return buffer;
    };
    const auto x = tested.rows(64), y = tested.rows(64);
    tested.write(y, all(64, 0));
    const std::byte* const first = stream.host_buffer(bytes)->data();
    for (int i = 0; i < 30; ++i) {
      stream.write(x.get(), Payload::of(filled(static_cast<float>(i))));
      tested.add(x, y, 64);
    }
    stream.fetch(stream.host_buffer(bytes), y.get(), bytes);  // nobody waits for it
    const auto fives = filled(5);
    const auto sums = stream.host_buffer(bytes);
    stream.fetch(sums, y.get(), bytes);
    stream.wait();
    const auto is = [&](const Buffer& buffer, float value) {
      return std::all_of(buffer.as<float>(), buffer.as<float>() + 64 * kCols,
                         [&](float v) { return v == value; });
    };
    CHECK(is(*sums, 29 * 30 / 2));
    CHECK(is(*fives, 5));
    // And is used again once it ran.
    bool again = false;
    std::vector<std::shared_ptr<Buffer>> held;
    for (int i = 0; i < 40; ++i) {
      held.push_back(stream.host_buffer(bytes));
      again |= held.back()->data() == first;
    }
    CHECK(again);
  }
}

TEST_CASE("memory that was waited for can be had again, and no more than there is") {
  if (device_under_test() == nullptr) return;
  Tested tested;
  const auto x = tested.rows(1), y = tested.rows(1);
  const auto has = [&](std::size_t bytes) {
    try {
      tested.device->memory(bytes);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  };
  for (int i = 0; i < 3; ++i) {
    REQUIRE(has(kMemoryBytes / 4 * 3));
    tested.add(x, y, 1);
    REQUIRE(has(kMemoryBytes / 4 * 3));
    CHECK_FALSE(has(kMemoryBytes / 4 * 3));  // the sum may still be made there
    tested.device->wait();
  }
  CHECK_FALSE(has(kMemoryBytes + 1));
}

TEST_CASE("a batch that comes again is a graph, with other addresses, grids and sizes of copies") {
  if (device_under_test() == nullptr) return;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Tested tested(seed);
    constexpr std::int64_t kMost = 300;
    std::vector<std::shared_ptr<std::byte>> places;
    for (int i = 0; i < 4; ++i) places.push_back(tested.rows(kMost));
    for (int round = 0; round < 12; ++round) {
      const auto& x = places[static_cast<std::size_t>(round % 3)];
      const auto& y = places[static_cast<std::size_t>(round % 3) + 1];
      const std::int64_t rows = 1 + (round * 97) % kMost;
      const auto value = static_cast<float>(round + 1);
      tested.write(x, all(rows, value));
      tested.write(y, all(kMost, 0.5f));
      for (int i = 0; i < 5; ++i) tested.add(x, y, rows);
      std::vector<float> expected = all(rows, 0.5f + 5 * value);
      expected.resize(static_cast<std::size_t>(kMost * kCols), 0.5f);
      CHECK(tested.read(y, kMost) == expected);
    }
    const GraphQueue::Counts& counts = tested.device->counts();
    CHECK(counts.captures == 1);
    CHECK(counts.graphs == 11);
    CHECK(counts.changes > 11);
  }
}

TEST_CASE("what an op is told comes with its batch, whatever was sent before") {
  if (device_under_test() == nullptr) return;
  // Ops that are told something, several to a batch, with graphs that know them.
  Tested tested;
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < known_questions().size(); ++i) {
      if (std::holds_alternative<RowsQuestion>(known_questions()[i]) == false) continue;
      INFO("question ", i, " for the time ", round);
      CHECK(ask(tested.stream, i) == known_answer(Numerics::kBf16, i));
    }
}

/// The next that is taken makes one piece of several, for which the device is waited for: in the
/// middle of an op.
void break_scratch(Stream& stream) {
  const Stream::Scope scope(stream);
  const std::size_t more = stream.scratch().bytes() + (2u << 20);
  stream.scratch().take<std::byte>(more / 2);
  stream.scratch().take<std::byte>(more);
}

TEST_CASE("an op whose scratch is replaced in the middle of it answers as before") {
  if (device_under_test() == nullptr) return;
  std::size_t first = 0;
  for (std::size_t i = 0; i < known_questions().size(); ++i) {
    const bool is_new = i == 0 || known_questions()[i].index() != known_questions()[i - 1].index();
    if (is_new) first = i;
    if (i - first >= 6) continue;  // of each kind
    Tested tested;
    for (int round = 0; round < 2; ++round) {
      break_scratch(tested.stream);
      INFO(to_string(known_questions()[i]));
      CHECK(ask(tested.stream, i) == known_answer(Numerics::kBf16, i));
    }
  }
}

TEST_CASE("bytes go up and come down whole, in pieces and from one device to another") {
  if (device_under_test() == nullptr) return;
  const auto one = open_tested(1), other = open_tested(2);
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4} << 20, (std::size_t{9} << 20) + 3}) {
    const auto here = one->memory(bytes), there = other->memory(bytes);
    const std::vector<std::byte> sent = drawn(bytes, bytes);
    std::vector<std::byte> back(bytes);
    one->upload(here.get(), sent);
    one->download(back, here.get());
    CHECK(back == sent);
    back.assign(bytes, std::byte{0});
    other->upload_from(there.get(), *one, here.get(), bytes);
    other->download(back, there.get());
    CHECK(back == sent);
  }
}

TEST_CASE("more than may wait in staging is waited for, and nothing of it is lost") {
  if (device_under_test() == nullptr) return;
  Tested tested(3, 1u << 20);
  constexpr std::size_t kBytes = (20u << 20) + 5;
  const auto memory = tested.device->memory(kBytes);
  const std::vector<std::byte> sent = drawn(kBytes, 4);
  std::vector<std::byte> back(kBytes);
  tested.stream.write(memory.get(), sent.data(), kBytes);
  tested.stream.read(back.data(), memory.get(), kBytes);
  CHECK(back == sent);
}

TEST_CASE("many batches may be under way") {
  if (device_under_test() == nullptr) return;
  Tested tested;
  const auto x = tested.rows(8), y = tested.rows(8);
  tested.write(x, all(8, 1));
  tested.write(y, all(8, 0));
  for (int i = 0; i < 300; ++i) {
    tested.add(x, y, 8);
    tested.device->flush();
  }
  CHECK(tested.read(y, 8) == all(8, 300));
}

TEST_CASE("what a device takes for work is told by its own clock") {
  if (device_under_test() == nullptr) return;
  Tested tested;
  const auto x = tested.rows(64), y = tested.rows(64);
  tested.write(x, all(64, 1));
  tested.write(y, all(64, 0));
  const auto time_of = [&](int adds) {
    return tested.device->timed([&] {
      for (int i = 0; i < adds; ++i) tested.add(x, y, 64);
    });
  };
  std::chrono::nanoseconds few = time_of(10), many = time_of(1000);
  for (int round = 0; round < 3; ++round) {
    few = std::min(few, time_of(10));
    many = std::min(many, time_of(1000));
  }
  CHECK(few > std::chrono::nanoseconds::zero());
  CHECK(many > 10 * few);
  for (int i = 0; i < 100; ++i) tested.add(x, y, 64);  // what is queued before does not count
  CHECK(time_of(10) < many);
  CHECK(tested.read(y, 64) == all(64, 4 * 10 + 4 * 1000 + 100 + 10));
}

TEST_CASE("any thread uploads, gives memory back, and closes a device") {
  if (device_under_test() == nullptr) return;
  for (int round = 0; round < 3; ++round) {
    auto device = open_tested();
    auto memory = device->memory(kMemoryBytes / 2);
    const std::vector<std::byte> sent = drawn(1000, 5);
    std::vector<std::byte> back(sent.size());
    std::thread([&] { device->upload(memory.get(), sent); }).join();
    device->download(back, memory.get());
    CHECK(back == sent);
    std::thread([last = std::move(memory), first = std::move(device)]() mutable {
      first = nullptr;
      last = nullptr;
    }).join();
  }
}

}  // namespace
}  // namespace troupe::kernels
