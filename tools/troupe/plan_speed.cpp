#include "tools/troupe/plan_speed.h"

#include <algorithm>

#include "model/json_reader.h"
#include "tools/troupe/plan/device_kinds.h"
#include "tools/troupe/plan/expert_loads.h"
#include "tools/troupe/plan/measure_machine.h"
#include "tools/troupe/plan/rates.h"

namespace troupe::cli {
namespace {

/// Status and measured files; a status of 58 layers of 256 experts is some 2 MiB.
constexpr std::size_t kSpeedFileBytesMax = 64u << 20;

/// The rates that flags give; 0: not given.
struct GivenRates {
  double memory = 0, compute = 0, network = 0;
};

Result<GivenRates> given_rates(const SpeedFlags& f) {
  GivenRates given;
  const auto read = [](const std::string& text, double& rate, const auto& parse,
                       const char* flag) -> Status {
    if (text.empty()) return {};
    const auto parsed = parse(flag, text);
    if (!parsed.ok()) return parsed.error();
    rate = *parsed;
    return {};
  };
  if (Status s = read(f.memory_bandwidth, given.memory, parse_bandwidth, "--memory-bandwidth"); !s)
    return s.error();
  if (Status s = read(f.compute, given.compute, parse_compute, "--compute"); !s) return s.error();
  if (Status s = read(f.network, given.network, parse_bandwidth, "--network"); !s) return s.error();
  return given;
}

Arithmetic arithmetic_of(const std::string& products, Numerics numerics) {
  if (products == "fp8") return Arithmetic::kFp8;
  const bool own = products == "auto" && by_tensor_cores(numerics);
  return own || products == "bf16" ? Arithmetic::kBf16 : Arithmetic::kFma;
}

/// One group's speed, from the least certain source to the surest.
GroupSpeed group_speed(const NodeGroup& group, const SpeedFlags& f, Numerics numerics,
                       const GivenRates& given, const std::vector<MeasuredDevice>& measured) {
  GroupSpeed speed;
  DeviceSpeed& m = speed.device_speed;
  const auto from = [&](const char* source) {
    speed.source += (speed.source.empty() ? "" : ", ") + std::string(source);
  };
  if (const DeviceKind* kind = find_device_kind(group.device)) {
    m.ceilings = kind->ceilings;
    m.arithmetic = arithmetic_of(f.products, numerics);
    from("data sheet");
  } else {
    m.efficiency.hop_s = kCpuHopSeconds;
  }
  for (const MeasuredDevice& one : measured) {
    if (one.device != (group.device.empty() ? "cpu" : group.device)) continue;
    const Ceilings sheet = m.ceilings;
    const Arithmetic arithmetic = m.arithmetic;
    m = one.device_speed;
    m.arithmetic = arithmetic;
    if (m.ceilings.network <= 0) m.ceilings.network = sheet.network;
    if (m.ceilings.link <= 0) m.ceilings.link = sheet.link;
    speed.source = "measured";
  }
  if (given.memory > 0) m.ceilings.memory = given.memory;
  if (given.compute > 0) m.ceilings.fma = m.ceilings.bf16 = m.ceilings.fp8 = given.compute;
  if (given.network > 0) m.ceilings.network = given.network;
  if (given.memory > 0 || given.compute > 0) m.products.clear();  // of another machine then
  if (given.memory > 0 || given.compute > 0 || given.network > 0) from("flags");
  return speed;
}

}  // namespace

Status check(const SpeedFlags& f) {
  if (const auto given = given_rates(f); !given.ok()) return given.error();
  if (f.products != "auto" && f.products != "fma" && f.products != "bf16" && f.products != "fp8")
    return invalid_argument("--products must be auto, fma, bf16 or fp8, not '" + f.products + "'.");
  if (f.measure && !f.measured.empty())
    return invalid_argument("--measure and --measured both say how fast devices are; give one.");
  if (f.skew != 1 && !f.expert_loads.empty())
    return invalid_argument(
        "--skew and --expert-loads both say what experts have to do; give one.");
  return {};
}

Result<SpeedQuestion> resolve(const SpeedFlags& f, const FitQuestion& q,
                              std::optional<MeasuredDevice>& measured) {
  SpeedQuestion speed;
  speed.context = f.context;
  speed.skew = f.skew;
  if (!f.expert_loads.empty()) {
    const auto text = read_text_file(f.expert_loads, kSpeedFileBytesMax);
    if (!text.ok()) return text.error();
    auto loads = parse_expert_loads(*text, f.expert_loads);
    if (!loads.ok()) return loads.error();
    speed.loads = std::move(*loads);
  }
  if (Status checked = check_speed(q, speed); !checked.ok()) return checked.error();
  std::vector<MeasuredDevice> machines;
  for (const std::string& path : f.measured) {
    const auto text = read_text_file(path, kSpeedFileBytesMax);
    if (!text.ok()) return text.error();
    auto read = parse_measured(*text, path);
    if (!read.ok()) return read.error();
    machines.push_back(std::move(*read));
  }
  if (f.measure) {
    auto made = measure_machine(q.spec, *q.engine.numerics, q.threads);
    if (!made.ok()) return made.error();
    measured = *made;
    machines.push_back(std::move(*made));
  }
  const auto given = given_rates(f);
  if (!given.ok()) return given.error();
  for (const NodeGroup& group : q.nodes)
    speed.groups.push_back(group_speed(group, f, *q.engine.numerics, *given, machines));
  return speed;
}

}  // namespace troupe::cli
