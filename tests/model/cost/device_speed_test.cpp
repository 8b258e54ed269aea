// How long devices take.

#include "model/cost/device_speed.h"

#include <doctest/doctest.h>

namespace troupe {
namespace {

using kernels::Codes;

DeviceSpeed device() {
  DeviceSpeed d;
  d.ceilings = {100, 10, 1000, 2000, 50, 400};
  d.efficiency = {0.5, 0.25, 0.5, 0, 0, 0};
  return d;
}

Work product(const ProductKind& kind, double rows, double elements, double bytes) {
  Work work;
  work.add(ProductWork{kind, rows, elements, bytes, 1, 1});
  return work;
}

TEST_CASE("which units make a product") {
  struct Case {
    Arithmetic arithmetic;
    ProductKind kind;
    double rate;
  };
  for (const Case& c : {Case{Arithmetic::kFma, {Codes::kFp8, false}, 10},
                        {Arithmetic::kFma, {Codes::kBf16, false}, 10},
                        {Arithmetic::kBf16, {Codes::kFp8, false}, 1000},
                        {Arithmetic::kBf16, {Codes::kInt4, false}, 1000},
                        {Arithmetic::kFp8, {Codes::kFp8, false}, 2000},
                        {Arithmetic::kFp8, {Codes::kFp8, true}, 1000},
                        {Arithmetic::kFp8, {Codes::kBf16, false}, 1000},
                        {Arithmetic::kBf16, {Codes::kF32, false}, 10}}) {
    DeviceSpeed d = device();
    d.arithmetic = c.arithmetic;
    CHECK(best_rate(d, c.kind) == c.rate);
  }
  DeviceSpeed without = device();
  without.arithmetic = Arithmetic::kFp8;
  without.ceilings.fp8 = 0;
  CHECK(best_rate(without, {Codes::kFp8, false}) == 1000);
}

TEST_CASE("memory or arithmetic, whichever takes longer") {
  const DeviceSpeed d = device();
  const Work few = product({Codes::kBf16, false}, 1, 500, 1000);
  CHECK(memory_seconds(d, few) == 10);
  CHECK(compute_seconds(d, few) == 1);
  CHECK(expected_seconds(d, few) == 20);
  const Work many = product({Codes::kBf16, false}, 100, 500, 1000);
  CHECK(compute_seconds(d, many) == 100);
  CHECK(expected_seconds(d, many) == 400);
  // Activations in two parts are multiplied twice.
  CHECK(compute_seconds(d, product({Codes::kBf16, true}, 100, 500, 1000)) == 200);
}

TEST_CASE("each op takes a time of its own") {
  DeviceSpeed d = device();
  d.efficiency.call_s = 3;
  Work work = product({Codes::kBf16, false}, 1, 500, 1000);
  work.other_calls = 4;
  CHECK(expected_seconds(d, work) == 20 + 5 * 3);
  d.efficiency.matrix_s = 7;
  CHECK(expected_seconds(d, work) == 20 + 5 * 3 + 7);
}

TEST_CASE("what was measured counts before ceilings, in a line between two points") {
  DeviceSpeed d = device();
  d.products = {{{Codes::kBf16, false}, {{1, 0.5}, {8, 1.2}, {32, 4.8}}}};
  struct Case {
    double rows, element_s;
  };
  for (const Case& c :
       {Case{0.5, 0.5}, {1, 0.5}, {8, 1.2}, {4.5, 0.85}, {32, 4.8}, {64, 9.6}, {20, 3.0}}) {
    CAPTURE(c.rows);
    CHECK(expected_seconds(d, product({Codes::kBf16, false}, c.rows, 10, 1)) ==
          doctest::Approx(10 * c.element_s));
  }
  // Another kind was not measured.
  CHECK(expected_seconds(d, product({Codes::kFp8, false}, 1, 10, 100)) == 2);
}

TEST_CASE("rows that gates draw differ, and the mean time is not that of the mean") {
  DeviceSpeed d = device();
  d.products = {{{Codes::kBf16, false}, {{1, 1}, {4, 1}, {404, 401}}}};
  Work work;
  work.add(ProductWork{{Codes::kBf16, false}, 4, 1, 1, 0, 0, true});
  // Poisson with 3.9207, given that it is not 0: 1 + E[max(0, rows - 4)].
  CHECK(expected_seconds(d, work) == doctest::Approx(1.7521).epsilon(0.001));
  for (const double rows : {1.0, 100.0}) {
    Work same;
    same.add(ProductWork{{Codes::kBf16, false}, rows, 1, 1, 0, 0, true});
    CHECK(expected_seconds(d, same) == doctest::Approx(rows > 1 ? 97 : 1));
  }
}

TEST_CASE("attention, measured: a row costs something whatever it sees") {
  DeviceSpeed d = device();
  Work work;
  work.attention = {1, 120, 2, 1, 1};  // 60 positions
  CHECK(expected_seconds(d, work) == doctest::Approx(120 / 250.0));
  d.attention_one = {10, 20};
  d.attention_batch = {100, 40};
  d.attention_prompt = {1000, 0};
  CHECK(expected_seconds(d, work) == doctest::Approx((120 + 2 * 20) / 10.0));
  work.attention.rows = work.attention.sequences = 32;
  CHECK(expected_seconds(d, work) == doctest::Approx((120 + 2 * 40) / 100.0));
  work.attention.rows = work.attention.sequences = 16.5;
  CHECK(expected_seconds(d, work) == doctest::Approx((16 + 2.0) / 2));
  work.attention.rows = 500;
  CHECK(expected_seconds(d, work) == doctest::Approx(0.12));
}

TEST_CASE("the wires work at the same time, both ways") {
  const DeviceSpeed d = device();
  CHECK(wire_seconds(d, {100, 200, 0, 0}) == 4);
  CHECK(wire_seconds(d, {100, 0, 4000, 0}) == 10);
  DeviceSpeed shared = device();
  shared.ceilings.link = 0;  // devices that share their memory
  CHECK(wire_seconds(shared, {100, 0, 4000, 0}) == 2);
}

}  // namespace
}  // namespace troupe
