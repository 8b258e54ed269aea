#include "tools/troupe/flags.h"

#include "actors/api/cluster.h"
#include "runtime/byte_size.h"
#include "tools/troupe/pull/hub_cache.h"

namespace troupe::cli {

void add_engine_flags(Command& command, EngineFlags& flags) {
  auto& o = flags.options;
  add_flags(
      command, "Engine",
      {{"--model", &o.model, "The checkpoint: a Hugging Face folder or a GGUF file"},
       {"--served-model-name", &o.served_model_name, "Its name in the API (default: the folder's)"},
       {"--max-model-len", &o.max_model_len,
        "Longest prompt and answer together (default: the model's)"},
       {"--max-num-seqs", &o.max_num_seqs, "Sequences in one step of a replica (default: 256)"},
       {"--max-num-batched-tokens", &o.max_num_batched_tokens,
        "Tokens in one step of a replica; longer prompts are computed in chunks (default: "
        "2048, or what devices have memory for)"},
       {"--block-size", &o.block_size, "KV cache positions a block (default: 16)"},
       {"--kv-cache-memory", &flags.kv_cache_memory,
        "KV cache of each shard, as 512MiB, 80GiB or bytes (default: what its GPU has left; of "
        "processors half of that, at most 4GiB, but room for the longest sequence)"},
       {.name = "--kv-cache-dtype",
        .target = &flags.kv_cache_dtype,
        .help = "auto, bf16 or fp8: how keys and values are kept; part of the numerics (default: "
                "auto)",
        .values = {"auto", "bf16", "fp8"}},
       {"--no-enable-prefix-caching", &flags.no_enable_prefix_caching,
        "Compute every prompt whole, also where an earlier one began alike"},
       {"--seed", &flags.seed, "Seed of requests that have none (default: drawn)"},
       {"--request-timeout", &o.request_timeout_s,
        "Longest a request may take, seconds (default: 600)"},
       {"--tensor-parallel-size", &o.tensor_parallel_size,
        "Devices that share every layer of a replica: 1, 2, 4 or 8 (default: 1)"},
       {"--pipeline-parallel-size", &o.pipeline_parallel_size,
        "Parts that a replica's layers are cut into, one after the other (default: 1)"},
       {"--data-parallel-size", &o.data_parallel_size,
        "Replicas (default: as many as there are devices for and as fit)"},
       {"--redundant-experts", &o.redundant_experts,
        "Extra copies of experts in every layer (default: 0)"},
       {.name = "--numerics",
        .target = &flags.numerics,
        .help = "auto, bf16, avx512_bf16, cuda_mma or reference: what defines every bit of every "
                "number. bf16 gives the same bits on every processor and GPU; avx512_bf16 others, "
                "faster for prompts and batches where there is AVX-512 with bf16 and no AMX; "
                "cuda_mma others, of GPUs' tensor cores; reference is plain float32, and slow "
                "(default: auto, bf16)",
        .values = {"auto", "bf16", "avx512_bf16", "cuda_mma", "reference"}}});
}

namespace {

Result<std::optional<Numerics>> resolve_numerics(const EngineFlags& flags) {
  const std::string& kv = flags.kv_cache_dtype;
  if (kv != "auto" && kv != "bf16" && kv != "fp8")
    return invalid_argument("--kv-cache-dtype must be auto, bf16 or fp8, not '" + kv + "'.");
  const std::string& name = flags.numerics;
  if (name == "auto" && kv == "auto") return std::optional<Numerics>();
  const auto named = parse_numerics(name == "auto" ? "bf16" : name);
  if (!named || name.find('+') != std::string::npos)
    return invalid_argument(
        "--numerics must be auto, bf16, avx512_bf16, cuda_mma or reference, not '" + name + "'.");
  if (*named == Numerics::kReference && kv != "auto")
    return invalid_argument("--kv-cache-dtype " + kv +
                            " does not go with --numerics reference, which keeps float32.");
  return std::optional(kv == "fp8" ? with_kv_fp8(*named) : *named);
}

}  // namespace

Result<EngineOptions> resolve(const EngineFlags& flags) {
  EngineOptions o = flags.options;
  if (o.model.empty())
    return invalid_argument("Say which checkpoint to serve with --model FOLDER.");
  if (o.model.starts_with("~/"))
    return invalid_argument("The shell did not expand the ~ of --model=" + o.model +
                            "; write --model " + o.model + ", or the whole path.");
  o.model = pull::model_folder(o.model);
  if (const Status checked = check(o); !checked.ok()) return checked.error();
  auto memory = parse_byte_size(flags.kv_cache_memory);
  if (!memory.ok()) return invalid_argument("--kv-cache-memory: " + memory.error().message);
  o.kv_cache_memory = *memory;
  o.seed = flags.seed;
  o.prefix_caching = !flags.no_enable_prefix_caching;
  auto numerics = resolve_numerics(flags);
  if (!numerics.ok()) return numerics.error();
  o.numerics = *numerics;
  return o;
}

void add_sampling_flags(Command& command, GenerationRequest& r) {
  add_flags(command, "Sampling",
            {{"--max-tokens", &r.max_tokens, "Most tokens of an answer"},
             {"--temperature", &r.temperature, "0 is greedy"},
             {"--top-p", &r.top_p, "Share of probability to choose from, (0, 1]"},
             {"--top-k", &r.top_k, "Choose from the k most likely; 0: all"},
             {"--min-p", &r.min_p, "Least probability, relative to the most likely token's"},
             {"--repetition-penalty", &r.repetition_penalty, "Above 1: repeats are less likely"},
             {"--presence-penalty", &r.presence_penalty, "-2 to 2"},
             {"--frequency-penalty", &r.frequency_penalty, "-2 to 2"},
             {.name = "--stop",
              .target = &r.stop,
              .help = "A text that ends an answer; may be repeated",
              .one_value_each = true},
             {"--ignore-eos", &r.ignore_eos, "Go on after the end of an answer"}});
}

void add_network_flags(Command& command, NetworkFlags& flags) {
  add_flags(command, "Network",
            {{.name = "--fabric",
              .target = &flags.fabric,
              .help = "How workers exchange tensors: auto, net, tcp, shm, verbs, efa or nccl "
                      "(default: auto)",
              .values = {"auto", "net", "tcp", "shm", "verbs", "efa", "nccl"}},
             {"--bind-interface", &flags.bind_interface,
              "The interface whose address peers use, such as eth0 (default: they "
              "find a worker as it came to the head)"}});
}

void add_device_flags(Command& command, DeviceFlags& flags, const Doubles& doubles) {
  flags.doubles = doubles;
  add_flags(
      command, "Device",
      {{.name = "--device",
        .target = &flags.device,
        .help = "What computes: auto (default: all GPUs, else the processors), cpu, or one "
                "device a NUMA node as cpu:0,1, cuda, or some GPUs as cuda:0,1",
        .values = {"auto", "cpu", "cuda"}},
       {"--device-memory", &flags.device_memory,
        "Memory of each device for weights, KV cache and computing, as 80GiB or bytes "
        "(default: what it has)"},
       {.name = "--cpu-family",
        .target = &flags.cpu_family,
        .help = "Instructions to use: auto, avx2, avx512 or amx; the bits are the same "
                "(default: auto, the fastest that the processor has)",
        .values = {"auto", "avx2", "avx512", "amx"}},
       {"--threads", &flags.threads, "Compute threads of each device (default: one a processor)"}});
}

void add_tier_flag(Command& command, DeviceFlags& flags) {
  add_flags(command, "Device",
            {{"--expert-tier-memory", &flags.expert_tier_memory,
              "Host memory of each worker for experts that others serve, as 64GiB or bytes, "
              "so that their loss reads no file (default: 0, none)"}});
}

Result<LocalClusterOptions> in_process(const EngineFlags& engine, const DeviceFlags& device) {
  auto options = resolve(engine);
  if (!options.ok()) return options.error();
  const auto devices = resolve(device);
  if (!devices.ok()) return devices.error();
  if (devices->size() > 1)
    return invalid_argument("--device " + device.device + ": this command computes on one device.");
  const Device::Options& one = devices->front();
  return LocalClusterOptions{*options, one.threads, one.cpu_family, one.memory_total, {one}};
}

}  // namespace troupe::cli
