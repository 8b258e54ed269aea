#include "tools/troupe/plan/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/spec/sizes.h"
#include "runtime/byte_size.h"

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits + " " + (count == 1 ? one : many);
}
std::string counted(std::uint64_t count, const std::string& one) {
  return counted(count, one, one + "s");
}

/// The parts of a device's memory, in the order in which they are told.
struct Part {
  const char* key;
  const char* words;
  std::uint64_t (*of)(const DeviceFit&);
};
constexpr Part kParts[] = {
    {"shard_bytes", "layers without experts", [](const DeviceFit& d) { return d.use.shard_bytes; }},
    {"expert_bytes", "experts", [](const DeviceFit& d) { return d.use.expert_bytes; }},
    {"spare_bytes", "  of them spare copies", [](const DeviceFit& d) { return d.spare_bytes; }},
    {"kv_bytes", "KV cache", [](const DeviceFit& d) { return d.use.kv_bytes; }},
    {"scratch_bytes", "computing, at most", [](const DeviceFit& d) { return d.scratch_bytes; }},
    {"free_bytes", "left free", [](const DeviceFit& d) { return d.memory - d.total(); }},
    {"memory_bytes", "memory", [](const DeviceFit& d) { return d.memory; }},
};

std::uint64_t in_all(const Fit& fit, const Part& part) {
  std::uint64_t bytes = 0;
  for (const DeviceFit& d : fit.devices) bytes += part.of(d);
  return bytes;
}

/// The device that has the least left.
const DeviceFit& fullest(const Fit& fit) {
  return *std::min_element(fit.devices.begin(), fit.devices.end(),
                           [](const DeviceFit& a, const DeviceFit& b) {
                             return a.memory - a.total() < b.memory - b.total();
                           });
}

struct Layout {
  std::vector<std::pair<std::int32_t, std::int32_t>> stages;  ///< first and last layer
  std::size_t copies = 0;                                     ///< of the experts of a layer
  std::size_t slots_min = 0, slots_max = 0;                   ///< of a layer on one device
};

Layout layout_of(const Fit& fit) {
  Layout layout;
  const auto& shards = fit.placement.shards;
  for (const auto& shard : shards)
    if (shard.replica == shards.front().replica && shard.tp_rank == 0)
      layout.stages.emplace_back(shard.first_layer, shard.last_layer);
  bool first = true;
  for (const auto& layer : fit.placement.experts) {
    layout.copies = std::max(layout.copies, layer.slots.size());
    std::map<DeviceRef, std::size_t> slots;
    for (const DeviceFit& d : fit.devices) slots[d.use.device] = 0;
    for (const auto& slot : layer.slots) ++slots[slot.device];
    for (const auto& [device, count] : slots) {
      layout.slots_min = first ? count : std::min(layout.slots_min, count);
      layout.slots_max = std::max(layout.slots_max, count);
      first = false;
    }
  }
  return layout;
}

std::string table(const Fit& fit) {
  std::string text;
  char line[120];
  const DeviceFit& device = fullest(fit);
  std::snprintf(line, sizeof line, "  %-24s %14s %14s\n", "", "fullest device", "all devices");
  text += line;
  for (const Part& part : kParts) {
    const std::uint64_t bytes = in_all(fit, part);
    if (bytes == 0) continue;
    std::snprintf(line, sizeof line, "  %-24s %14s %14s\n", part.words,
                  format_byte_size(part.of(device)).c_str(), format_byte_size(bytes).c_str());
    text += line;
  }
  return text;
}

std::string layout_text(const FitQuestion& q, const Fit& fit) {
  const Layout layout = layout_of(fit);
  std::string text = "Layout: " + counted(fit.placement.replicas.size(), "replica") + " of ";
  if (layout.stages.size() == 1) {
    text += "one stage";
  } else {
    text += std::to_string(layout.stages.size()) + " stages (layers";
    for (const auto& [first, last] : layout.stages)
      text += " " + std::to_string(first) + "-" + std::to_string(last);
    text += ")";
  }
  if (const int ranks = q.engine.tensor_parallel_size; ranks > 1)
    text += ", " + std::to_string(ranks) + " tensor-parallel ranks each";
  if (layout.copies > 0) {
    text += "; of each layer's " + std::to_string(q.spec.num_experts()) + " experts " +
            counted(layout.copies, "copy", "copies") + ", ";
    if (layout.slots_min < layout.slots_max) text += std::to_string(layout.slots_min) + " to ";
    text += std::to_string(layout.slots_max) + " on a device";
  }
  text += ".\n";
  if (fit.engine.max_num_batched_tokens < q.engine.max_num_batched_tokens)
    text += "Steps have " + counted(fit.engine.max_num_batched_tokens, "token") + ", not " +
            std::to_string(q.engine.max_num_batched_tokens) +
            ": computing with more takes more memory than there is.\n";
  return text;
}

std::string survival_text(const FitQuestion& q, const Fit& fit) {
  std::string text = "If a node is lost: ";
  if (!fit.survival) {
    text += "not worked out for so many nodes";
  } else if (node_count(q.nodes) == 1) {
    text += "there is no other";
  } else {
    const Survival& s = *fit.survival;
    const std::size_t all = s.at_once.size() + s.with_reload.size() + s.not_at_all.size();
    const auto say = [&](const std::vector<NodeId>& nodes, const char* words) {
      if (nodes.empty()) return;
      if (!text.ends_with(": ")) text += "; ";
      text += nodes.size() == all
                  ? "whichever it is, "
                  : "of " + std::to_string(nodes.size()) + " of the " + std::to_string(all) + ", ";
      text += words;
    };
    say(s.at_once, "requests go on at once");
    say(s.with_reload, "the others have room for what it held, and read it from files first");
    say(s.not_at_all, "requests wait until another comes, for the others have no room");
  }
  if (fit.experts > 0 && node_count(q.nodes) > 1)
    text += ". " + std::to_string(fit.experts_surviving) + " of " + std::to_string(fit.experts) +
            " experts keep a copy in memory";
  return text + ".\n";
}

/// That there is memory for far more than the cache has, where it has room for few.
std::string cache_hint(const Fit& fit, std::uint64_t sequences) {
  const DeviceFit& device = fullest(fit);
  const std::uint64_t left = device.memory - device.total();
  if (sequences >= static_cast<std::uint64_t>(fit.engine.max_num_seqs) ||
      left < device.use.kv_bytes)
    return "";
  return "Every device has " + format_byte_size(left) +
         " left, so that --kv-cache-memory may give the cache more.\n";
}

std::string fit_text(const FitQuestion& q, const Fit& fit, const std::string& model) {
  std::string text = "It fits.\n\n" + table(fit) + "\n" + layout_text(q, fit);
  const auto sequences =
      fit.kv_tokens /
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(fit.engine.max_model_len));
  text += "KV cache: " + counted(fit.kv_tokens, "token") + " in all, " +
          counted(fit.kv_tokens_min, "token") + " a replica; " + counted(sequences, "sequence") +
          " of --max-model-len " + std::to_string(fit.engine.max_model_len) + ".\n" +
          cache_hint(fit, sequences);
  text += survival_text(q, fit);
  text += "\nFlags: troupe head --model " + model;
  for (const std::string& flag : flags_of(q, fit)) text += " " + flag;
  return text + "\n";
}

std::string trouble_text(const FitAnswer& answer) {
  std::string text = "It does not fit.\n\n" + answer.trouble + "\n";
  text += "It takes at least " + format_byte_size(answer.needed) + ", and " +
          format_byte_size(answer.plannable) + " may be used";
  if (answer.needed > answer.plannable)
    text += ": " + format_byte_size(answer.needed - answer.plannable) + " are missing";
  text += ".\n";
  if (answer.remedies.empty()) return text + "No change of one flag that was tried makes it fit.\n";
  text += "\nEach of these makes it fit:\n";
  for (const Remedy& remedy : answer.remedies)
    text += "  " + remedy.flag + " " + remedy.value + "\n";
  return text;
}

/// What a reader has to know before following the plan; empty: nothing.
std::string warning_of(const FitQuestion& q) {
  const bool gpus = std::any_of(q.nodes.begin(), q.nodes.end(),
                                [](const NodeGroup& g) { return !g.device.empty(); });
  return gpus
             ? "No cluster of GPUs has been measured yet: what they hold and do is arithmetic from "
               "their data sheets (kernels on one: tests/gpu/REPORT.md). A worker uses them if it "
               "is built with CUDA (TROUPE_CUDA=ON), and else the CPUs and their memory."
             : "";
}

Json nodes_json(const std::vector<NodeId>& nodes) {
  Json names = Json::array();
  for (const NodeId node : nodes) names.push_back(to_string(node));
  return names;
}

Json fit_json(const FitQuestion& q, const Fit& fit) {
  const Layout layout = layout_of(fit);
  Json json;
  json["flags"] = flags_of(q, fit);
  Json stages = Json::array();
  for (const auto& [first, last] : layout.stages) stages.push_back({first, last});
  json["layout"] = {{"replicas", fit.placement.replicas.size()},
                    {"stages", stages},
                    {"expert_copies", layout.copies},
                    {"expert_slots_per_device", {layout.slots_min, layout.slots_max}}};
  json["kv_cache"] = {{"tokens", fit.kv_tokens},
                      {"tokens_per_replica", fit.kv_tokens_min},
                      {"max_model_len", fit.engine.max_model_len}};
  Json survival = nullptr;
  if (fit.survival)
    survival = {{"at_once", nodes_json(fit.survival->at_once)},
                {"with_reload", nodes_json(fit.survival->with_reload)},
                {"not_at_all", nodes_json(fit.survival->not_at_all)}};
  json["node_loss"] = survival;
  json["experts"] = {{"all", fit.experts}, {"surviving_any_node_loss", fit.experts_surviving}};
  Json all;
  for (const Part& part : kParts) all[part.key] = in_all(fit, part);
  json["memory"] = all;
  json["devices"] = Json::array();
  for (const DeviceFit& d : fit.devices) {
    Json device = {{"device", to_string(d.use.device)}};
    for (const Part& part : kParts) device[part.key] = part.of(d);
    json["devices"].push_back(device);
  }
  return json;
}

}  // namespace

std::vector<std::string> flags_of(const FitQuestion& q, const Fit& fit) {
  const EngineOptions& e = fit.engine;
  const EngineOptions defaults;
  std::vector<std::string> flags = {"--min-devices " + std::to_string(fit.devices.size())};
  const auto add = [&](const char* flag, std::int64_t value, std::int64_t unless) {
    if (value != unless) flags.push_back(std::string(flag) + " " + std::to_string(value));
  };
  add("--tensor-parallel-size", e.tensor_parallel_size, defaults.tensor_parallel_size);
  add("--pipeline-parallel-size", e.pipeline_parallel_size, defaults.pipeline_parallel_size);
  add("--data-parallel-size", e.data_parallel_size, defaults.data_parallel_size);
  add("--redundant-experts", e.redundant_experts, defaults.redundant_experts);
  add("--max-model-len", e.max_model_len, q.spec.positions_max);
  add("--max-num-seqs", e.max_num_seqs, defaults.max_num_seqs);
  add("--max-num-batched-tokens", e.max_num_batched_tokens, defaults.max_num_batched_tokens);
  add("--block-size", e.block_size, defaults.block_size);
  if (e.kv_cache_memory > 0)
    flags.push_back("--kv-cache-memory " + exact_byte_size(e.kv_cache_memory));
  if (e.numerics == Numerics::kReference) flags.push_back("--numerics reference");
  if (sums_in_one_chain(*e.numerics)) flags.push_back("--numerics avx512_bf16");
  if (by_tensor_cores(*e.numerics)) flags.push_back("--numerics cuda_mma");
  if (kv_type(*e.numerics) == DType::kF8E4M3) flags.push_back("--kv-cache-dtype fp8");
  return flags;
}

std::string report_text(const FitQuestion& q, const FitAnswer& answer, const std::string& model) {
  std::string text = q.spec.architecture + ", " +
                     counted(static_cast<std::uint64_t>(q.spec.num_layers()), "layer");
  if (q.spec.num_experts() > 0) text += ", " + std::to_string(q.spec.num_experts()) + " experts";
  text += ", " + format_byte_size(model_bytes(q.spec, *q.engine.numerics)) + " of weights with " +
          std::string(to_string(*q.engine.numerics)) + "; on " + to_string(q.nodes) + ".\n";
  if (const std::string warning = warning_of(q); !warning.empty()) text += warning + "\n";
  return text + (answer.fit ? fit_text(q, *answer.fit, model) : trouble_text(answer));
}

Json report_json(const FitQuestion& q, const FitAnswer& answer) {
  Json json = {{"fits", answer.fit.has_value()},
               {"model",
                {{"architecture", q.spec.architecture},
                 {"layers", q.spec.num_layers()},
                 {"experts", q.spec.num_experts()},
                 {"numerics", to_string(*q.engine.numerics)},
                 {"weight_bytes", model_bytes(q.spec, *q.engine.numerics)}}},
               {"nodes", to_string(q.nodes)}};
  if (const std::string warning = warning_of(q); !warning.empty()) json["warning"] = warning;
  if (answer.fit) {
    json.update(fit_json(q, *answer.fit));
    return json;
  }
  json["trouble"] = answer.trouble;
  json["needed_bytes"] = answer.needed;
  json["plannable_bytes"] = answer.plannable;
  json["remedies"] = Json::array();
  for (const Remedy& r : answer.remedies)
    json["remedies"].push_back({{"flag", r.flag}, {"value", r.value}});
  return json;
}

}  // namespace troupe
