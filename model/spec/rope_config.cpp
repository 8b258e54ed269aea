#include "model/spec/rope_config.h"

#include "kernels/scalar_math.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr double kThetaMin = 1.0 + 1e-6, kThetaMax = 1e12;

/// How much YaRN stretches a magnitude: 0.1 mscale ln(scale) + 1 (arXiv 2309.00071, eq. 22).
double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * kernels::log_f64(scale) + 1.0;
}

void read_factor(JsonReader& in, RopeSpec& rope) { rope.factor = in.number("factor", 1.0, 1e6); }

void read_original(JsonReader& in, RopeSpec& rope) {
  rope.original_positions =
      in.int32("original_max_position_embeddings", 1, limits::kDimensionMax);
}

void read_yarn(JsonReader& in, RopeConfig& out) {
  RopeSpec& rope = out.rope;
  rope.scaling = RopeSpec::Scaling::kYarn;
  read_original(in, rope);
  read_factor(in, rope);
  rope.beta_fast = in.number_or("beta_fast", 32.0, 1e-6, 1e6);
  rope.beta_slow = in.number_or("beta_slow", 1.0, 1e-6, 1e6);
  rope.truncate = in.boolean_or("truncate", true);
  const double mscale = in.number_or("mscale", 0.0, 0.0, 1e3);
  const double all_dim = in.number_or("mscale_all_dim", 0.0, 0.0, 1e3);
  const double all = yarn_mscale(rope.factor, all_dim);
  if (in.has("attention_factor"))
    rope.magnitude = in.number("attention_factor", 1e-6, 1e6);
  else if (mscale != 0 && all_dim != 0)
    rope.magnitude = yarn_mscale(rope.factor, mscale) / all;
  else
    rope.magnitude = yarn_mscale(rope.factor, 1.0);
  out.score_factor = all_dim != 0 ? all * all : 1.0;
}

void read_llama3(JsonReader& in, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::kLlama3;
  read_original(in, rope);
  read_factor(in, rope);
  rope.low_freq_factor = in.number("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = in.number("high_freq_factor", 1e-6, 1e6);
  if (in.ok() && rope.high_freq_factor <= rope.low_freq_factor)
    in.fail("high_freq_factor", "above low_freq_factor");
}

/// The keys within rope_scaling or rope_parameters.
void read_scaling(JsonReader& in, RopeConfig& out) {
  const char* key = in.has("rope_type") ? "rope_type" : "type";
  const auto type = in.string_or(key, "default");
  if (in.has("factor") && !in.has(key))
    return in.fail("rope_type", "given where factor is, to say how positions are scaled");
  if (type == "default") return;
  if (type == "yarn") return read_yarn(in, out);
  if (type == "llama3") return read_llama3(in, out.rope);
  if (type == "linear") {
    out.rope.scaling = RopeSpec::Scaling::kLinear;
    return read_factor(in, out.rope);
  }
  in.fail(key, "\"default\", \"linear\", \"yarn\" or \"llama3\", the ones supported");
}

}  // namespace

Result<RopeConfig> read_rope(JsonReader& in, const std::string& file, std::int32_t dim,
                             kernels::RopePairs pairs, double partial) {
  RopeConfig out;
  out.rope.pairs = pairs;
  out.rope.theta = in.number_or("rope_theta", 10000.0, kThetaMin, kThetaMax);
  partial = in.number_or("partial_rotary_factor", partial, 1e-6, 1.0);
  const char* key = in.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (in.ok() && in.has(key)) {
    JsonReader scaling(*in.find(key), file + ", " + key);
    out.rope.theta = scaling.number_or("rope_theta", out.rope.theta, kThetaMin, kThetaMax);
    partial = scaling.number_or("partial_rotary_factor", partial, 1e-6, 1.0);
    if (scaling.ok()) read_scaling(scaling, out);
    if (!scaling.ok()) return scaling.status().error();
  }
  if (!in.ok()) return in.status().error();
  out.rope.dim = static_cast<std::int32_t>(dim * partial);
  if (out.rope.dim < 2 || out.rope.dim % 2 != 0)
    return corrupt(file + ": positions turn pairs of numbers, so an even number of a head's " +
                   std::to_string(dim) + " should turn, but " + std::to_string(out.rope.dim) +
                   " do");
  return out;
}

}  // namespace troupe
