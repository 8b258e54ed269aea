#include "runtime/byte_size.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "tools/troupe/cli.h"

namespace troupe::cli {

void add_engine_flags(CLI::App* command, EngineFlags& flags) {
  auto& o = flags.options;
  const std::string group = "Engine";
  const auto add = [&](const char* name, auto& value, const char* help) {
    command->add_option(name, value, help)->group(group);
  };
  add("--model", o.model, "The checkpoint: a Hugging Face folder");
  add("--served-model-name", o.served_model_name, "Its name in the API (default: the folder's)");
  add("--max-model-len", o.max_model_len,
      "Longest prompt and answer together (default: the model's)");
  add("--max-num-seqs", o.max_num_seqs, "Sequences in one step of a replica (default: 256)");
  add("--max-num-batched-tokens", o.max_num_batched_tokens,
      "Tokens in one step of a replica; longer prompts are computed in chunks (default: 2048)");
  add("--block-size", o.block_size, "KV cache positions a block (default: 16)");
  add("--kv-cache-memory", flags.kv_cache_memory,
      "KV cache of each shard, as 512MiB, 80GiB or bytes (default: from what the device has)");
  add("--kv-cache-dtype", o.kv_cache_dtype, "auto: what the numerics ask for");
  command
      ->add_flag("--no-enable-prefix-caching", flags.no_enable_prefix_caching,
                 "Accepted for vLLM's users; prefixes are not cached yet")
      ->group(group);
  add("--seed", flags.seed, "Seed of requests that have none (default: drawn)");
  add("--request-timeout", o.request_timeout_s,
      "Longest a request may take, seconds (default: 600)");
  add("--tensor-parallel-size", o.tensor_parallel_size, "Only 1 for now");
  add("--pipeline-parallel-size", o.pipeline_parallel_size, "Shards a replica (default: 1)");
  add("--data-parallel-size", o.data_parallel_size,
      "Replicas (default: one a device, as far as they fit)");
  add("--redundant-experts", o.redundant_experts,
      "Extra copies of experts in every layer (default: 0)");
  add("--numerics", flags.numerics,
      "auto, reference, avx2, avx512_bf16 or amx_bf16: the kernels, and with them every bit of "
      "every "
      "number (default: auto, the fastest that all members have)");
}

Result<EngineOptions> resolve(const EngineFlags& flags) {
  EngineOptions o = flags.options;
  if (o.model.empty())
    return invalid_argument("Say which checkpoint to serve with --model FOLDER.");
  if (const Status checked = check(o); !checked.ok()) return checked.error();
  auto memory = parse_byte_size(flags.kv_cache_memory);
  if (!memory.ok()) return invalid_argument("--kv-cache-memory: " + memory.error().message);
  o.kv_cache_memory = *memory;
  o.seed = flags.seed;
  if (flags.numerics != "auto") {
    o.numerics = parse_numerics(flags.numerics);
    if (!o.numerics)
      return invalid_argument(
          "--numerics must be auto, reference, avx2, avx512_bf16 or amx_bf16, not '" +
          flags.numerics + "'.");
  }
  return o;
}

void add_network_flags(CLI::App* command, NetworkFlags& flags) {
  command
      ->add_option(
          "--fabric", flags.fabric,
          "How workers exchange tensors: auto, net, tcp, shm, verbs or efa (default: auto)")
      ->group("Network");
  command
      ->add_option("--bind-interface", flags.bind_interface,
                   "The interface whose address peers use, such as eth0")
      ->group("Network");
}

void add_device_flags(CLI::App* command, DeviceFlags& flags) {
  command->add_option("--device", flags.device, "cpu (default)")->group("Device");
  command
      ->add_option("--device-memory", flags.device_memory,
                   "Memory for weights and KV cache, as 80GiB or bytes (default: this machine's)")
      ->group("Device");
  command->add_option("--threads", flags.threads, "Compute threads (default: all processors)")
      ->group("Device");
}

void add_tier_flag(CLI::App* command, DeviceFlags& flags) {
  command
      ->add_option("--expert-tier-memory", flags.expert_tier_memory,
                   "Host memory of each worker for experts that others serve, as 64GiB or bytes, "
                   "so that their loss reads no file (default: 0, none)")
      ->group("Device");
}

Result<std::uint64_t> resolve_tier(const DeviceFlags& flags) {
  auto memory = parse_byte_size(flags.expert_tier_memory);
  if (!memory.ok()) return invalid_argument("--expert-tier-memory: " + memory.error().message);
  return *memory;
}

Result<Device::Options> resolve(const DeviceFlags& flags) {
  if (flags.device != "cpu")
    return invalid_argument("--device must be cpu, not '" + flags.device +
                            "': this build has no other back-end.");
  if (flags.threads < 0 || flags.threads > limits::kThreadsMax)
    return invalid_argument("--threads must be from 0 (all processors) to " +
                            std::to_string(limits::kThreadsMax) + ".");
  auto memory = parse_byte_size(flags.device_memory);
  if (!memory.ok()) return invalid_argument("--device-memory: " + memory.error().message);
  Device::Options device;
  device.kind = flags.device;
  device.threads = flags.threads > 0 ? flags.threads : host_processors();
  device.memory_total = *memory > 0 ? *memory : host_memory_bytes();
  return device;
}

}  // namespace troupe::cli
