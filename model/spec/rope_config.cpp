#include "model/spec/rope_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/scalar_math.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr double kThetaMin = 1.0 + 1e-6, kThetaMax = 1e12;
constexpr const char* kOriginal = "original_max_position_embeddings";

/// How much YaRN stretches a magnitude: 0.1 mscale ln(scale) + 1 (arXiv 2309.00071, eq. 22).
double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * kernels::log_f64(scale) + 1.0;
}

std::string type_of(const Json& said) {
  for (const char* key : {"rope_type", "type"})
    if (const auto found = said.find(key); found != said.end() && found->is_string())
      return found->get<std::string>();
  return "default";
}

/// Reads rope_scaling or rope_parameters, whichever is said.
class RopeReader {
 public:
  RopeReader(SpecBuilder& b, JsonReader& in) : b_(b), rope_(b.spec.rope), in_(in) {}

  /// The score's factor.
  double run(const Json& said) {
    for (const auto& [key, value] : said.items())
      if (value.is_object())
        in_.fail(key, "absent, since angles of their own for some layers are not supported");
    const char* key = in_.has("rope_type") ? "rope_type" : "type";
    const auto type = in_.string_or(key, "default");
    if (in_.has("factor") && !in_.has(key))
      in_.fail("rope_type", "given where factor is, to say how positions are scaled");
    else if (type == "yarn")
      return read_yarn();
    else if (type == "llama3")
      read_llama3();
    else if (type == "linear")
      read_linear();
    else if (type != "default")
      in_.fail(key, "\"default\", \"linear\", \"yarn\" or \"llama3\", the ones supported");
    return 1.0;
  }

 private:
  void read_linear() {
    rope_.scaling = RopeSpec::Scaling::kLinear;
    read_factor();
  }

  double read_yarn() {
    rope_.scaling = RopeSpec::Scaling::kYarn;
    read_original();
    read_factor();
    rope_.beta_fast = in_.number_or("beta_fast", 32.0, 1e-6, 1e6);
    rope_.beta_slow = in_.number_or("beta_slow", 1.0, 1e-6, 1e6);
    rope_.truncate = in_.boolean_or("truncate", true);
    const double mscale = in_.number_or("mscale", 0.0, 0.0, 1e3);
    const double all_dim = in_.number_or("mscale_all_dim", 0.0, 0.0, 1e3);
    const double all = yarn_mscale(rope_.factor, all_dim);
    if (in_.has("attention_factor"))
      rope_.magnitude = in_.number("attention_factor", 1e-6, 1e6);
    else if (mscale != 0 && all_dim != 0)
      rope_.magnitude = yarn_mscale(rope_.factor, mscale) / all;
    else
      rope_.magnitude = yarn_mscale(rope_.factor, 1.0);
    lengthen();
    return all_dim != 0 ? all * all : 1.0;
  }

  void read_llama3() {
    rope_.scaling = RopeSpec::Scaling::kLlama3;
    read_original();
    read_factor();
    rope_.low_freq_factor = in_.number("low_freq_factor", 1e-6, 1e6);
    rope_.high_freq_factor = in_.number("high_freq_factor", 1e-6, 1e6);
    if (in_.ok() && rope_.high_freq_factor <= rope_.low_freq_factor)
      in_.fail("high_freq_factor", "above low_freq_factor");
  }

  void read_factor() { rope_.factor = in_.number("factor", 1.0, 1e6); }

  void read_original() {
    const std::int32_t beside =
        b_.in.int32_or(kOriginal, b_.spec.positions_max, 1, limits::kDimensionMax);
    rope_.original_positions = in_.int32_or(kOriginal, beside, 1, limits::kDimensionMax);
    if (b_.in.has(kOriginal) && rope_.original_positions != beside)
      in_.fail(kOriginal, "as it is beside, " + std::to_string(beside));
  }

  /// Qwen's recipe leaves max_position_embeddings as it was.
  void lengthen() {
    const double positions = std::min(rope_.original_positions * rope_.factor,
                                      static_cast<double>(limits::kDimensionMax));
    b_.spec.positions_max = std::max(b_.spec.positions_max, static_cast<std::int32_t>(positions));
  }

  SpecBuilder& b_;
  RopeSpec& rope_;
  JsonReader& in_;
};

/// Null: it is absent or empty.
const Json* said_in(JsonReader& in, const char* key) {
  const Json* said = in.find(key);
  if (!said) return nullptr;
  if (!said->is_object()) in.fail(key, "a JSON object");
  return said->is_object() && !said->empty() ? said : nullptr;
}

/// Where both are said, rope_parameters must say nothing else than what is taken. `used` has what
/// may be told beside them.
Status check_agreement(const Json& scaling, const Json& parameters, const Json& used,
                       const std::string& file) {
  const std::string type = type_of(parameters);
  const auto differ = [&](const std::string& key, const Json& one, const Json& other) {
    return corrupt(file + ": rope_scaling and rope_parameters contradict each other in " +
                   key.substr(0, 64) + ", " + one.dump(-1, ' ', true).substr(0, 64) + " and " +
                   other.dump(-1, ' ', true).substr(0, 64) +
                   "; rope_scaling is the one that counts: say it all there, and leave the other "
                   "out");
  };
  if (type != "default" && type != type_of(scaling))
    return differ("rope_type", type_of(scaling), type);
  for (const auto& [key, value] : parameters.items()) {
    if (key == "rope_type" || key == "type" || value.is_null()) continue;
    const Json& taken = used.contains(key) ? used.at(key) : scaling.value(key, Json());
    if (taken != value) return differ(key, taken, value);
  }
  return {};
}

}  // namespace

Result<double> read_rope(SpecBuilder& b, std::int32_t dim, kernels::RopePairs pairs,
                         const RopeDefaults& defaults) {
  JsonReader& in = b.in;
  RopeSpec& rope = b.spec.rope;
  rope.pairs = pairs;
  rope.theta = in.number_or("rope_theta", defaults.theta, kThetaMin, kThetaMax);
  double partial = in.number_or("partial_rotary_factor", defaults.partial, 1e-6, 1.0);
  const Json* scaling = said_in(in, "rope_scaling");
  const Json* parameters = said_in(in, "rope_parameters");
  if (!in.ok()) return in.status().error();
  double score_factor = 1.0;
  if (const Json* said = scaling ? scaling : parameters) {
    JsonReader from(*said, b.file + (scaling ? ", rope_scaling" : ", rope_parameters"));
    rope.theta = from.number_or("rope_theta", rope.theta, kThetaMin, kThetaMax);
    partial = from.number_or("partial_rotary_factor", partial, 1e-6, 1.0);
    score_factor = RopeReader(b, from).run(*said);
    if (!from.ok()) return from.status().error();
    if (!in.ok()) return in.status().error();
  }
  if (scaling && parameters) {
    const Json used = {{"rope_theta", rope.theta}, {"partial_rotary_factor", partial}};
    if (auto status = check_agreement(*scaling, *parameters, used, b.file); !status)
      return status.error();
  }
  rope.dim = static_cast<std::int32_t>(dim * partial);
  if (rope.dim < 2 || rope.dim % 2 != 0)
    return corrupt(b.file + ": positions turn pairs of numbers, so an even number of a head's " +
                   std::to_string(dim) + " should turn, but " + std::to_string(rope.dim) + " do");
  return score_factor;
}

}  // namespace troupe
