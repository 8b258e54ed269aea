#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/api/generation.h"
#include "runtime/clock.h"
#include "runtime/engine_options.h"
#include "runtime/generation.h"
#include "runtime/result.h"

namespace caf {
class actor_system;
}

/// The embedding API: Troupe as a library. See tests/embedding for a complete program.
///
///     auto cluster = troupe::Cluster::start({.model = "path/to/checkpoint"});
///     auto answer = cluster.value()->generate({.prompt = "Once"});
///     puts(answer.value().choices[0].text.c_str());
namespace troupe {

/// One choice of an answer, whole.
struct Completion {
  std::string text;                 ///< empty for a checkpoint without a tokenizer
  std::vector<TokenOutput> tokens;  ///< with log-probabilities, if asked for
  FinishReason finish = FinishReason::kNone;
};

/// What a blocking generate() returns.
struct Generation {
  std::vector<TokenId> prompt_tokens;
  std::vector<TokenOutput> prompt_logprobs;  ///< of prompt tokens 1, 2, ...; if asked for
  std::vector<Completion> choices;           ///< `n` of them
  GenerationTiming timing;
};

/// How a cluster within this process is made.
struct LocalClusterOptions {
  EngineOptions engine;
  int threads = 0;                  ///< of its one device; 0: all processors
  std::uint64_t device_memory = 0;  ///< bytes; 0: this machine's
};

/// A cluster: one of this process's own (the same actors as everywhere, on one device), or a
/// running one that the program joins as a client. Thread-safe.
class Cluster {
 public:
  /// Starts a cluster within this process and waits until it can serve. Errors say what is wrong
  /// with the checkpoint or the options.
  static Result<std::unique_ptr<Cluster>> start(const LocalClusterOptions& options);
  /// Connects to a running head: `join_file` is what it wrote (STATE/join).
  static Result<std::unique_ptr<Cluster>> connect(const std::string& join_file,
                                                  Duration deadline = std::chrono::seconds(5));
  virtual ~Cluster() = default;

  using OnEvent = std::function<void(const GenerationEvent&)>;

  /// Waits for the whole answer. `on_event`, if given, sees every event meanwhile.
  Result<Generation> generate(GenerationRequest request, OnEvent on_event = {});
  /// Streams without waiting: `on_event` is called for every event, from a thread of the cluster,
  /// and must not block. Returns the number for cancel().
  Result<std::uint64_t> stream(GenerationRequest request, OnEvent on_event);
  /// What was asked for is no longer wanted; an event with kCancelled ends it.
  void cancel(std::uint64_t request) { service().cancel(request); }

  /// The JSON of `troupe status --json`.
  virtual Result<std::string> status_json() = 0;
  /// Cluster events from now on, from a thread of the cluster; must not block.
  virtual Status subscribe(std::function<void(const ClusterEvent&)> listener) = 0;

  virtual GenerationService& service() = 0;
  /// The CAF system that the cluster's actors live in: spawn your own there (see actors/api/caf.h).
  virtual caf::actor_system& system() = 0;
};

}  // namespace troupe
