#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/json_reader.h"
#include "model/placement/eplb.h"
#include "model/spec/read_spec.h"
#include "model/step_travel.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/head_process.h"
#include "tools/troupe/plan/report.h"
#include "tools/troupe/plan/speed_report.h"
#include "tools/troupe/plan_speed.h"
#include "tools/troupe/pull/hub_cache.h"

namespace troupe::cli {
namespace {

using nlohmann::json;

/// kEplbEntriesMax weights of seven digits.
constexpr std::size_t kPlanInputBytesMax = 32u << 20;

Result<std::string> read_input() {
  std::string text;
  char buffer[64 << 10];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(std::cin.gcount()));
    if (text.size() > kPlanInputBytesMax) {
      return invalid_argument("The input has more than " + std::to_string(kPlanInputBytesMax) +
                              " bytes, too many for one plan.");
    }
  }
  return text;
}

/// Rounded once, as float32 tensors are made of whole numbers and of others.
float to_float(const json& number) {
  if (number.is_number_unsigned()) return static_cast<float>(number.get<std::uint64_t>());
  if (number.is_number_integer()) return static_cast<float>(number.get<std::int64_t>());
  const double value = number.get<double>();
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::infinity();
  return static_cast<float>(value);
}

Result<std::vector<std::vector<float>>> read_weight(const json* rows) {
  const auto wrong = [] {
    return invalid_argument(
        "weight must be a list of layers, each a list of the loads of its experts.");
  };
  if (!rows || !rows->is_array()) return wrong();
  std::vector<std::vector<float>> weight;
  for (const json& row : *rows) {
    if (!row.is_array()) return wrong();
    weight.emplace_back();
    for (const json& value : row) {
      if (!value.is_number()) return wrong();
      weight.back().push_back(to_float(value));
    }
  }
  return weight;
}

Result<EplbInput> parse_input(const std::string& text) {
  const auto parsed = parse_json(text, "The input");
  if (!parsed.ok()) return parsed.error();
  JsonReader reader(*parsed, "The input");
  if (!reader.ok()) return reader.status().error();
  EplbInput input;
  auto weight = read_weight(reader.find("weight"));
  if (!weight.ok()) return weight.error();
  input.weight = std::move(*weight);
  input.num_replicas = reader.integer("num_replicas", 1, kEplbEntriesMax);
  input.num_groups = reader.integer("num_groups", 1, kEplbEntriesMax);
  input.num_nodes = reader.integer("num_nodes", 1, kEplbEntriesMax);
  input.num_gpus = reader.integer("num_gpus", 1, kEplbEntriesMax);
  if (!reader.ok()) return reader.status().error();
  return input;
}

int run_eplb() {
  std::ios::sync_with_stdio(false);
  const auto text = read_input();
  if (!text.ok()) return fail(text.error());
  const auto input = parse_input(*text);
  if (!input.ok()) return fail(input.error());
  const auto plan = rebalance_experts(*input);
  if (!plan.ok()) return fail(plan.error());
  const nlohmann::ordered_json answer = {
      {"phy2log", plan->phy2log}, {"log2phy", plan->log2phy}, {"logcnt", plan->logcnt}};
  std::cout << answer.dump() << '\n';
  return kDone;
}

// --- Will it fit --------------------------------------------------------------------------------

struct PlanOptions {
  HeadFlags head;
  DeviceFlags device;
  SpeedFlags speed;
  std::string nodes;
  bool json = false;
};

/// A guess, since the machines need not be there.
constexpr int kThreads = 64;

/// Ends the help.
constexpr std::string_view kJsonFields = R"(
Fields of --json, beside those of memory and layout (bytes, seconds, operations, a second each):
  speed.devices[]      what was counted with: nodes, source, products (fma, bf16, fp8),
                       memory_bandwidth, compute {fma, bf16, fp8}, network, link, efficiency
                       {memory, compute, wire: shares that are expected; call_s, matrix_s, hop_s:
                       an op's, a matrix's and a message's own time}
  speed.missing        instead of all below: what nobody has said
  speed.context, sequences_max (of a replica), expert_skew, device_imbalance, network_known
  speed.decode[]       for 1, 32, 128 and sequences_max sequences a replica: rows; tokens (of all
                       replicas, a step); busiest_device {weight_bytes, kv_bytes, operations,
                       wire_bytes {network_out, network_in, link_out, link_in}}, a step;
                       expert_copies_read (of a device's, a layer); least {memory_s, compute_s,
                       wire_s, tokens_per_s}; expected {seconds, overhead_s, tokens_per_s};
                       limit (memory, compute, wire, overhead)
  speed.prefill        the same of a step of prompts (rows: tokens of a replica), and
                       per_1000_tokens of the busiest device; prompt_s (until the first token)
  speed.changes[]      what, tokens_per_s: tried with the largest of decode
  measured             with --measure: the file that --measured takes)";

/// What the head would refuse too.
Status check_lengths(const ModelSpec& spec, EngineOptions& engine) {
  const std::int64_t longest = spec.positions_max;
  if (engine.max_model_len > longest)
    return invalid_argument("--max-model-len must be from 1 to " + std::to_string(longest) +
                            ", all the positions that the model's configuration gives it.");
  if (engine.max_model_len == 0) engine.max_model_len = longest;
  return check_steps_travel(spec, engine, engine.max_model_len);
}

Result<FitQuestion> question_of(const PlanOptions& o, const ModelSpec& spec,
                                const Command& command) {
  FitQuestion q{spec, {}, {}};
  auto engine = resolve(o.head.engine);
  if (!engine.ok()) return engine.error();
  q.engine = std::move(*engine);
  if (!q.engine.numerics) q.engine.numerics = Numerics::kBf16;
  if (const Status checked = check_lengths(spec, q.engine); !checked.ok()) return checked.error();
  auto nodes = parse_nodes(o.nodes);
  if (!nodes.ok()) return nodes.error();
  q.nodes = std::move(*nodes);
  const auto tier = resolve_tier(o.device);
  if (!tier.ok()) return tier.error();
  q.tier_memory = *tier;
  if (o.device.threads < 0 || o.device.threads > limits::kThreadsMax)
    return invalid_argument("--threads must be from 0 (" + std::to_string(kThreads) + ") to " +
                            std::to_string(limits::kThreadsMax) + ".");
  q.threads = o.device.threads > 0 ? o.device.threads
              : o.speed.measure    ? host_processors()
                                   : kThreads;
  q.choose_pipeline = !is_given(command, "--pipeline-parallel-size");
  q.choose_redundant = !is_given(command, "--redundant-experts");
  return q;
}

int run_plan(const PlanOptions& o, const Command& command) {
  if (o.head.engine.options.model.empty() || o.nodes.empty())
    return fail(invalid_argument("Say which model with --model DIR and on which nodes with "
                                 "--nodes, such as 2x8:h100-80g; `troupe plan --help` tells more."),
                kUsage);
  // What is wrong with the flags is told before the folder is looked at.
  if (const auto nodes = parse_nodes(o.nodes); !nodes.ok()) return fail_with(nodes.error());
  if (const auto engine = resolve(o.head.engine); !engine.ok()) return fail_with(engine.error());
  if (const Status checked = check(o.speed); !checked.ok()) return fail_with(checked.error());
  const auto spec = load_model_spec(pull::model_folder(o.head.engine.options.model));
  if (!spec.ok()) return fail(spec.error());
  const auto question = question_of(o, *spec, command);
  if (!question.ok()) return fail_with(question.error());
  std::optional<MeasuredDevice> measured;
  const auto speed = resolve(o.speed, *question, measured);
  if (!speed.ok()) return fail_with(speed.error());
  const auto answer = find_fit(*question);
  if (!answer.ok()) return fail_with(answer.error());
  Result<SpeedAnswer> fast = SpeedAnswer{};
  if (answer->fit) fast = find_speed(*question, *answer->fit, *speed);
  if (!fast.ok()) return fail_with(fast.error());
  if (o.json) {
    auto json = report_json(*question, *answer);
    if (answer->fit) json["speed"] = speed_json(*question, *speed, *fast);
    if (measured) json["measured"] = to_json(*measured);
    std::cout << json.dump() << '\n';
  } else {
    std::cout << report_text(*question, *answer, o.head.engine.options.model);
    if (answer->fit) std::cout << '\n' << speed_text(*question, *speed, *fast);
  }
  return answer->fit ? kDone : kFailed;
}

void add_speed_flags(Command& command, SpeedFlags& flags) {
  const std::vector<Flag> own = {
      {"--context", &flags.context,
       "Tokens of a sequence, and of a prompt, for what is said of speed (default: 4096, or "
       "--max-model-len if that is less)"},
      {"--skew", &flags.skew,
       "How often a layer's busiest expert is chosen over the mean (default: 1, all alike)"},
      {"--expert-loads", &flags.expert_loads,
       "Instead of --skew: a file of `troupe status --json` of a cluster that serves the model"},
      {"--memory-bandwidth", &flags.memory_bandwidth,
       "What each device reads of its memory, such as 3.0TB/s"},
      {"--compute", &flags.compute, "What each device multiplies and adds, such as 800TFLOP/s"},
      {"--network", &flags.network,
       "What each device sends to other nodes and gets at the same time, such as 50GB/s or "
       "400Gbit/s"},
      {"--measured", &flags.measured,
       "A file of measured speeds: what --measure --json printed. It holds for devices without a "
       "name, or for those that its \"device\" names"},
      {"--measure", &flags.measure,
       "Measure this machine's processors for some seconds; devices without a name are taken to "
       "be like them"},
      {"--products", &flags.products,
       "Units of GPUs that make products: fma, bf16 or fp8, which no numerics use yet (default: "
       "auto, what --numerics uses: bf16 with cuda_mma, else fma)"}};
  command.flags.insert(command.flags.end(), own.begin(), own.end());
}

Command eplb_command() {
  return {.name = "eplb",
          .description =
              "DeepSeek's expert load balancer. Reads {\"weight\", \"num_replicas\", "
              "\"num_groups\", \"num_nodes\", \"num_gpus\"} as JSON from the standard input and "
              "prints {\"phy2log\", \"log2phy\", \"logcnt\"}, equal to the published code's answer",
          .examples =
              "  troupe plan eplb < loads.json\n"
              "  echo '{\"weight\": [[90, 132, 40, 61]], \"num_replicas\": 6, \"num_groups\": 2,"
              " \"num_nodes\": 1, \"num_gpus\": 2}' | troupe plan eplb",
          .run = [](const Call&) { return run_eplb(); },
          .keeps_state = false};
}

}  // namespace

Command plan_command() {
  auto o = std::make_shared<PlanOptions>();
  Command command{
      .name = "plan",
      .description =
          "Whether a model fits on a cluster that need not be there, and how fast it would be: the "
          "layout, the memory of each device, the flags to give, tokens a second and what limits "
          "them. DIR needs only config.json. Exits with 1 if it does not fit",
      .examples =
          "  troupe plan --model DIR --nodes 2x8:h100-80g\n"
          "  troupe plan --model DIR --nodes 4:64GiB,2:128GiB --max-model-len 32768 --json\n"
          "  troupe plan --config configs/prefill-ep32.toml --model DIR --nodes 4x8:h100-80g\n"
          "  troupe plan --model DIR --nodes 2:256GiB --measure --network 25Gbit/s\n"
          "  troupe plan --model DIR --nodes 2:256GiB --memory-bandwidth 300GB/s --compute "
          "8TFLOP/s\n"
          "  troupe plan eplb < loads.json\n" +
          std::string(kJsonFields),
      .flags = {{"--nodes", &o->nodes,
                 "COUNT:MEMORY or COUNTxDEVICES:MEMORY, separated by commas; MEMORY is of a "
                 "device: 64GiB, or a name such as h100-80g"},
                {"--threads", &o->device.threads,
                 "Compute threads of a device (default: " + std::to_string(kThreads) +
                     ", with --measure all processors)"}},
      .below = {eplb_command()},
      .run = [o](const Call& call) { return run_plan(*o, call.command); },
      .keeps_state = false};
  add_speed_flags(command, o->speed);
  command.flags.push_back({"--json", &o->json, "One JSON object; sizes are bytes"});
  add_engine_flags(command, o->head.engine);
  add_tier_flag(command, o->device);
  // What the head is told serves for its plan as well, which need not know where it serves.
  const std::size_t shown = command.flags.size();
  add_serving_flags(command, o->head);
  add_lone_head_flags(command, o->head);
  for (std::size_t i = shown; i < command.flags.size(); ++i) command.flags[i].group.clear();
  return command;
}

}  // namespace troupe::cli
