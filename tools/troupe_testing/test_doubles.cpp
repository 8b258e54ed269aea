#include "tools/troupe_testing/test_doubles.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "actors/device/device_kind.h"
#include "actors/head/head_node.h"
#include "actors/worker/worker_node.h"
#include "kernels/cuda/twin/backend.h"
#include "runtime/log.h"
#include "tools/troupe/device_flags.h"

namespace troupe::cli {
namespace {

std::string asked(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

std::optional<TokenId> asked_token(const char* name) {
  const std::string token = asked(name);
  TokenId id = 0;
  const auto read = std::from_chars(token.data(), token.data() + token.size(), id);
  return read.ec == std::errc() ? std::optional(id) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<TestDoubles>> TestDoubles::from_environment() {
  std::unique_ptr<TestDoubles> made(new TestDoubles);
  made->numa_nodes_ = asked("TROUPE_TEST_NUMA_NODES");
  made->nccl_ = asked("TROUPE_TEST_NCCL");
  made->nvml_ = asked("TROUPE_TEST_NVML");
  made->crash_token_ = asked_token("TROUPE_TEST_CRASH_TOKEN");
  made->head_crash_token_ = asked_token("TROUPE_TEST_HEAD_CRASH_TOKEN");
  auto injected = parse_injected_failure(asked("TROUPE_TEST_DEVICE"));
  if (!injected.ok()) return injected.error();
  made->injected_ = *injected;
  auto breakage = parse_breakage(asked("TROUPE_TEST_BREAK"));
  if (!breakage.ok()) return breakage.error();
  made->breakage_ = std::move(*breakage);
  return made;
}

Doubles TestDoubles::doubles() {
  Doubles doubles;
  doubles.twins = [this](const DeviceList& list, int worker, int workers) {
    return twins_of(list, worker, workers);
  };
  doubles.change_worker = [this](WorkerOptions& options) { change(options); };
  if (head_crash_token_)
    doubles.change_head = [token = *head_crash_token_](HeadOptions& options) {
      options.on_tokens = [token](std::span<const TokenOutput> tokens) {
        if (std::ranges::count(tokens, token, &TokenOutput::token) > 0) __builtin_trap();
      };
    };
  doubles.numa_nodes = numa_nodes_;
  doubles.nccl = nccl_;
  return doubles;
}

/// Made-up GPUs share the processors and the memory of their worker.
Result<std::vector<Device::Options>> TestDoubles::twins_of(const DeviceList& list, int worker,
                                                           int workers) const {
  const kernels::Backend* const twin = kernels::cuda_twin_backend();
  if (twin == nullptr)
    return invalid_argument(
        "--device cuda-twin: this processor lacks the instructions that a "
        "GPU's kernels are tried with (AVX2 and FMA); use --device cpu.");
  const std::vector<int> numbers = list.numbers.empty() ? std::vector<int>{worker} : list.numbers;
  std::vector<Device::Options> devices;
  for (const int number : numbers) {
    Device::Options& device = devices.emplace_back(whole_machine(workers));
    const int count = static_cast<int>(numbers.size());
    device.kind = "cuda-twin";
    device.number = number;
    device.name = "the twin of a GPU";
    device.architecture = "twin";
    device.backend = twin;
    if (!nvml_.empty()) device.bus_id = "0000:00:0" + std::to_string(number) + ".0";
    device.threads = std::max(1, device.threads / count);
    device.memory_total /= static_cast<std::uint64_t>(count);
  }
  return devices;
}

void TestDoubles::change(WorkerOptions& options) {
  if (!nvml_.empty()) options.nvml = nvml_;
  if (crash_token_)
    options.on_tokens = [token = *crash_token_](std::span<const TokenId> tokens) {
      if (std::ranges::count(tokens, token) > 0) __builtin_trap();
    };
  if (injected_.what != kernels::InjectedFailure::What::kNone) inject(options.devices.front());
  if (breakage_) break_kernels(options);
}

void TestDoubles::inject(Device::Options& device) {
  if (device.backend != kernels::cuda_twin_backend()) return;
  logger().warn("for a test, the device fails after {} calls", injected_.after);
  failing_ = kernels::failing_twin_backend(injected_);
  device.backend = &*failing_;
}

void TestDoubles::break_kernels(WorkerOptions& options) {
  logger().warn("for a test, {} computes wrongly after {} s", breakage_->op, breakage_->after_s);
  if (breakage_->after_s == 0) broken_from_ = TimePoint::min();
  for (Device::Options& device : options.devices) {
    const kernels::Backend* of = device.backend;
    if (of == nullptr) of = backend_of(device.kind);
    if (of == nullptr) of = &kernels::cpu_backend();
    device.backend = &spoilt_.emplace_back(*of, [this](std::string_view op) {
      return op == breakage_->op && now() >= broken_from_.load();
    });
    if (breakage_->round_s) device.known_answers_every = std::chrono::seconds(*breakage_->round_s);
  }
  options.on_life = [this, next = std::move(options.on_life)](NodeId id, Incarnation incarnation) {
    TimePoint never = TimePoint::max();
    if (id.value != 0)
      broken_from_.compare_exchange_strong(never, now() + std::chrono::seconds(breakage_->after_s));
    if (next) next(id, incarnation);
  };
}

}  // namespace troupe::cli
