#include "actors/replica/chunk_size.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/limits.h"

using namespace troupe;

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Devices that take a base and so much a row.
struct Machine {
  double base_s = 0, row_s = 0;
  Duration step(std::int32_t rows) const {
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(base_s + row_s * rows));
  }
};

/// Chunks of a long prompt beside `decoding` others, then some steps without prompts; as often.
std::int32_t settle(ChunkSize& chunk, const Machine& machine, std::int32_t decoding, int rounds) {
  const double times = decoding > 0 ? stretch::kShared : stretch::kAlone;
  for (int round = 0; round < rounds; ++round) {
    const std::int32_t rows = chunk.rows(decoding, times);
    chunk.on_step(rows + decoding, rows, machine.step(rows + decoding));
    for (int i = 0; i < 4; ++i)
      chunk.on_step(std::max(1, decoding), 0, machine.step(std::max(1, decoding)));
  }
  return chunk.rows(decoding, times);
}

}  // namespace

TEST_CASE("a step takes what is wanted of it, whatever the machine") {
  for (const double row_s : {50e-6, 1e-3, 10e-3})
    for (const double base_s : {0.0, 5e-3, 30e-3})
      for (const std::int32_t decoding : {0, 1, 20}) {
        CAPTURE(row_s);
        CAPTURE(base_s);
        CAPTURE(decoding);
        const Machine machine{base_s, row_s};
        ChunkSize chunk(1 << 20);
        const std::int32_t rows = settle(chunk, machine, decoding, 20);
        const double alone = seconds(machine.step(std::max(1, decoding)));
        const double target = seconds(limits::kStepTarget);
        const double wanted =
            decoding > 0 ? std::min(target, limits::kStepStretchShared * alone) : target;
        const double took = seconds(machine.step(rows + decoding));
        if (rows > limits::kChunkRowsLeast) {
          CHECK(took == doctest::Approx(wanted).epsilon(0.1));
        } else {
          CHECK(took >= wanted);
        }
      }
}

TEST_CASE("ahead of those who stream a prompt has most of a step") {
  const Machine machine{10e-3, 1e-4};
  ChunkSize chunk(1 << 20);
  settle(chunk, machine, 4, 20);
  const double alone = seconds(machine.step(4));
  const std::int32_t rows = chunk.rows(4, stretch::kAhead);
  CHECK(seconds(machine.step(rows + 4)) == doctest::Approx(stretch::kAhead * alone).epsilon(0.1));
  // It is never more than a step may take in any case.
  const Machine slow{200e-3, 1e-3};
  ChunkSize other(1 << 20);
  settle(other, slow, 4, 20);
  const double took = seconds(slow.step(other.rows(4, stretch::kAhead) + 4));
  CHECK(took == doctest::Approx(seconds(limits::kStepTarget)).epsilon(0.1));
}

TEST_CASE("for several prompts a step has as many rows as it takes to be efficient") {
  // Steps of one prompt's rows beside twenty that stream, then as many as are asked for.
  const auto settled = [](const Machine& machine) {
    ChunkSize chunk(1 << 20);
    settle(chunk, machine, 20, 10);
    std::int32_t rows = 0;
    for (int i = 0; i < 30; ++i) {
      rows = chunk.efficient_rows(20);
      chunk.on_step(rows + 20, rows, machine.step(rows + 20));
    }
    return rows;
  };
  // Where a step takes 50 ms whatever is in it, 100 us a row: 1,000 rows are 68 % of the best rate.
  const Machine slow_start{50e-3, 100e-6};
  const auto rate = [&](std::int32_t rows) { return rows / seconds(slow_start.step(rows)); };
  const std::int32_t rows = settled(slow_start);
  CHECK(rate(rows) >= 0.8 * rate(4096));
  CHECK(seconds(slow_start.step(rows + 20)) <= 1.1 * seconds(limits::kStepTarget));
  // It is no longer than that takes.
  const std::int32_t linear = settled({1e-3, 1e-4});
  CHECK(linear <= 512);
  // Nor than a step may be.
  const Machine slow{100e-3, 10e-3};
  CHECK(seconds(slow.step(settled(slow) + 20)) <= 1.1 * seconds(limits::kStepTarget));
  // Before anything was measured it is what any first step gets.
  CHECK(ChunkSize(1 << 20).efficient_rows(3) == limits::kChunkRowsFirst);
}

TEST_CASE("a chunk is never under the least nor over the most") {
  ChunkSize slow(2048), fast(2048), tiny(3);
  CHECK(settle(slow, {0, 10.0}, 0, 30) == limits::kChunkRowsLeast);
  CHECK(settle(fast, {0, 0}, 0, 30) == 2048);
  CHECK(settle(tiny, {0, 10.0}, 0, 30) == 3);
}

TEST_CASE("where a step takes long whatever is in it, half of it goes to rows") {
  ChunkSize chunk(1 << 20);
  const Machine machine{2.0, 1e-3};
  const double rows_take = 1e-3 * settle(chunk, machine, 1, 30);
  CHECK(rows_take == doctest::Approx(machine.base_s).epsilon(0.1));
}

TEST_CASE("chunks grow by a factor of two at most, and go back when a step fails") {
  ChunkSize chunk(1 << 20);
  const Machine machine{0, 1e-6};
  std::int32_t last = chunk.rows(0, stretch::kAlone);
  CHECK(last == limits::kChunkRowsFirst);
  for (int i = 0; i < 8; ++i) {
    chunk.on_step(last, last, machine.step(last));
    const std::int32_t next = chunk.rows(0, stretch::kAlone);
    CHECK(next == 2 * last);
    last = next;
  }
  chunk.on_failure();
  const std::int32_t after = chunk.rows(0, stretch::kAlone);
  CHECK(after <= last / 4);
  for (int i = 0; i < 20; ++i) chunk.on_failure();
  CHECK(chunk.rows(0, stretch::kAlone) == limits::kChunkRowsLeast);
}

TEST_CASE("a short prompt says nothing of long ones") {
  ChunkSize chunk(2048);
  const Machine machine{0.05, 100e-6};
  for (int i = 0; i < 50; ++i) chunk.on_step(3, 3, machine.step(3));
  CHECK(chunk.rows(0, stretch::kAlone) >= limits::kChunkRowsFirst);
}
