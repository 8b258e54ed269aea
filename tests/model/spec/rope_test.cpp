// Rotary angles of each scaling, against numbers that transformers gives.

#include <doctest/doctest.h>

#include "model/rope_table.h"

namespace troupe {
namespace {

TEST_CASE("linear scaling divides every angle") {
  RopeSpec rope;
  rope.dim = 8;
  const auto plain = rope_inverse_frequencies(rope);
  CHECK(plain[0] == 1.0f);
  CHECK(plain[1] == doctest::Approx(0.1));
  rope.scaling = RopeSpec::Scaling::kLinear;
  rope.factor = 4;
  const auto scaled = rope_inverse_frequencies(rope);
  for (std::size_t i = 0; i < 4; ++i) CHECK(scaled[i] == plain[i] / 4);
}

TEST_CASE("Llama 3.1 stretches long wavelengths, keeps short ones and mixes the rest") {
  RopeSpec rope;
  rope.dim = 128;
  rope.theta = 500000;
  const auto plain = rope_inverse_frequencies(rope);
  rope.scaling = RopeSpec::Scaling::kLlama3;
  rope.factor = 8;
  rope.original_positions = 8192;
  const auto scaled = rope_inverse_frequencies(rope);
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const double wavelength = 6.283185307179586 / plain[i];
    if (wavelength < 8192 / 4.0) CHECK(scaled[i] == plain[i]);
    else if (wavelength > 8192.0) CHECK(scaled[i] == doctest::Approx(plain[i] / 8.0));
    else {
      const double smooth = (8192 / wavelength - 1) / 3;
      CHECK(scaled[i] == doctest::Approx((1 - smooth) * plain[i] / 8 + smooth * plain[i]));
    }
  }
}

TEST_CASE("YaRN's bounds are whole pairs unless they are not to be") {
  RopeSpec rope;
  rope.dim = 64;
  rope.theta = 150000;
  rope.scaling = RopeSpec::Scaling::kYarn;
  rope.factor = 32;
  rope.original_positions = 4096;
  const auto rounded = rope_inverse_frequencies(rope);
  rope.truncate = false;
  const auto exact = rope_inverse_frequencies(rope);
  // Bounds 8.0928 and 17.3980 of 32 pairs; rounded: 8 and 18.
  RopeSpec own = rope;
  own.scaling = RopeSpec::Scaling::kNone;
  const auto plain = rope_inverse_frequencies(own);
  CHECK(exact[8] == plain[8]);
  CHECK(exact[9] < plain[9]);
  CHECK(exact[18] == doctest::Approx(plain[18] / 32));
  CHECK(rounded[17] > plain[17] / 32);
  CHECK(exact[12] != rounded[12]);
  const double ramp = (12 - 8.092779) / (17.398025 - 8.092779);
  CHECK(exact[12] == doctest::Approx(plain[12] / 32 * ramp + plain[12] * (1 - ramp)));
}

TEST_CASE("tables are multiplied with the magnitude") {
  RopeSpec rope;
  rope.dim = 4;
  rope.magnitude = 1.5;
  const RopeTables tables(rope, 3);
  CHECK(tables.cos().size() == 3 * 2);
  CHECK(tables.sin().size() == 3 * 2);
  CHECK(tables.cos()[0] == 1.5f);
  CHECK(tables.sin()[0] == 0.0f);
  CHECK(tables.cos()[2] == doctest::Approx(1.5 * 0.5403023));
}

}  // namespace
}  // namespace troupe
