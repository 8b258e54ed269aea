#include "kernels/scalar_math.h"

#include "kernels/backend.h"
#include "kernels/scratch.h"
#include "kernels/softmax_logprob.h"
#include "support.h"

namespace troupe::kernels {
namespace {

TEST_CASE("float32 exp is within two units in the last place") {
  double worst = 0;
  for (float x = -87.0f; x < 88.7f; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp_f32(x) / exact - 1));
  }
  CHECK(worst < 2 * 1.2e-7);
  CHECK(exp_f32(0) == 1);
  CHECK(exp_f32(-1000) == 0);
  CHECK(exp_f32(-INFINITY) == 0);
  CHECK(exp_f32(1000) == INFINITY);
  CHECK(std::isnan(exp_f32(std::nanf(""))));
  CHECK(exp_f32(-87.0f) > 0x1p-126f);
  CHECK(exp_f32(-87.00001f) == 0);
  CHECK(sigmoid_f32(0) == 0.5f);
  CHECK(sigmoid_f32(-200) == 0);
}

TEST_CASE("float64 functions are within some units in the last place") {
  double exp_worst = 0, log_worst = 0, trig_worst = 0;
  for (double x = -700; x < 700; x += 0.0317) {
    exp_worst = std::max(exp_worst, std::abs(exp_f64(x) / std::exp(x) - 1));
    const double e = std::exp(x);
    const double log_error = std::abs(log_f64(e) - std::log(e));
    log_worst = std::max(log_worst, log_error / std::max(1.0, std::abs(x)));
  }
  for (double x = -200000; x < 200000; x += 17.39) {
    trig_worst = std::max(trig_worst, std::abs(sincos_f64(x).sin - std::sin(x)));
    trig_worst = std::max(trig_worst, std::abs(sincos_f64(x).cos - std::cos(x)));
  }
  for (double x = -4; x < 4; x += 0.001) {
    trig_worst = std::max(trig_worst, std::abs(sincos_f64(x).sin - std::sin(x)));
    trig_worst = std::max(trig_worst, std::abs(sincos_f64(x).cos - std::cos(x)));
  }
  CHECK(exp_worst < 5e-16);
  CHECK(log_worst < 5e-16);
  CHECK(trig_worst < 1e-15);
  CHECK(exp_f64(-800) == 0);
  CHECK(exp_f64(800) == INFINITY);
  CHECK(log_f64(1) == 0);
  CHECK(log_f64(0) == -INFINITY);
  CHECK(std::isnan(log_f64(-1)));
  CHECK(pow_f64(10000, -0.25) == doctest::Approx(0.1).epsilon(1e-15));
  CHECK(sqrt_f32(2.0f) == std::sqrt(2.0f));
}

TEST_CASE("log_softmax normalises") {
  for (std::size_t n : {1, 2, 7, 8, 9, 1000}) {
    const auto logits = random_values(n, static_cast<unsigned>(n), 30);
    const LogSoftmax s = log_softmax(logits.data(), n);
    double exact = 0, total = 0;
    for (float x : logits) exact += std::exp(static_cast<double>(x) - s.max);
    for (float x : logits) total += std::exp(s.logprob(x));
    CHECK(s.sum == doctest::Approx(exact).epsilon(1e-13));
    CHECK(total == doctest::Approx(1).epsilon(1e-13));
  }
  const std::vector<float> some = {-INFINITY, 1, std::nanf(""), 1};
  const LogSoftmax s = log_softmax(some.data(), some.size());
  CHECK(s.logprob(1) == doctest::Approx(std::log(0.5)));
  CHECK(s.logprob(-INFINITY) == -INFINITY);
  const std::vector<float> none = {-INFINITY, -INFINITY};
  CHECK(std::isnan(log_softmax(none.data(), 2).logprob(-INFINITY)));
}

TEST_CASE("scratch grows to its largest use and then stays") {
  Scratch scratch(cpu_backend().memory);
  const auto use = [&] {
    Scratch::Scope scope(scratch);
    auto* a = scratch.take<float>(1000);
    a[999] = 1;
    {
      Scratch::Scope inner(scratch);
      auto* b = scratch.take<double>(1 << 20);
      b[(1 << 20) - 1] = 2;
      CHECK(reinterpret_cast<std::uintptr_t>(b) % 64 == 0);
    }
    auto* c = scratch.take<std::uint8_t>(5 << 20);
    c[0] = 3;
    CHECK(a[999] == 1);
  };
  use();
  const std::size_t grown = scratch.bytes();
  for (int i = 0; i < 3; ++i) use();
  CHECK(scratch.bytes() == grown);
}

}  // namespace
}  // namespace troupe::kernels
