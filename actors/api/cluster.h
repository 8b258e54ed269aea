#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/frontend/generation_service.h"
#include "runtime/clock.h"
#include "runtime/device_options.h"
#include "runtime/engine_options.h"
#include "runtime/generation.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace caf {
class actor_system;
}

/// The embedding API: Troupe as a library. See tests/embedding for a complete program.
///
///     auto cluster = troupe::Cluster::start({.engine = {.model = "path/to/checkpoint"}});
///     auto answer = cluster.value()->generate({.prompt = "Once"});
///     puts(answer.value().choices[0].text.c_str());
namespace troupe {

class ClientSession;
struct OperationProgress;

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
  std::vector<float> hidden = {};  ///< [tokens, width], as the request's pooling says
};

/// How far a drain or a rebalance is.
struct MovesProgress {
  std::uint64_t done = 0;  ///< of `total` pieces that have to move
  std::uint64_t total = 0;
  std::string text;  ///< for people
};

/// How a cluster within this process is made.
struct LocalClusterOptions {
  EngineOptions engine;
  int threads = 0;                                         ///< of its one device; 0: all processors
  CpuFamily cpu_family = supported_cpu_families().back();  ///< instructions; the bits are the same
  std::uint64_t device_memory = 0;                         ///< bytes; 0: this machine's
  std::vector<DeviceOptions> devices = {};                 ///< none: one, as said above
};

/// A cluster: one of this process's own (the same actors as everywhere, on one device), or a
/// running one that the program joins as a client. Thread-safe.
///
/// Callbacks come from threads of the cluster, one after the other for each request: they must not
/// block, must not throw, and must not call what waits here (generate, stream, status_json); cancel
/// is fine. A program may have any number of clusters.
class Cluster {
 public:
  /// Starts a cluster within this process and waits until it can serve. Errors say what is wrong
  /// with the checkpoint or the options.
  static Result<std::unique_ptr<Cluster>> start(const LocalClusterOptions& options);
  /// Connects to a running head: `join_file` is what it wrote (STATE/join). Errors: kNotFound (no
  /// such file), kCorrupt, kUnavailable (nobody answers), kRefused (it is another cluster's),
  /// kDeadlineExceeded.
  static Result<std::unique_ptr<Cluster>> connect(const std::string& join_file,
                                                  Duration deadline = std::chrono::seconds(5));
  /// Ends it: requests that are not over get an event with kCancelled; a cluster of this process's
  /// own is stopped. No other call may be going on. Actors of the program's own that live in
  /// system() must have ended or have no handles any more: CAF waits for them.
  virtual ~Cluster() = default;

  using OnEvent = std::function<void(const GenerationEvent&)>;

  /// Waits for the whole answer, or for the error that ends it. `on_event`, if given, sees every
  /// event meanwhile.
  Result<Generation> generate(GenerationRequest request, OnEvent on_event = {});
  /// Streams without waiting for the answer: `on_event` is called for every event, until one has
  /// `request_done` or an error. Returns the number for cancel(). What is wrong with a request is
  /// an error here; the head of a cluster that was connected to says it with an event instead.
  Result<std::uint64_t> stream(GenerationRequest request, OnEvent on_event);
  /// What was asked for is no longer wanted; an event with kCancelled ends it. Does not wait.
  void cancel(std::uint64_t request) { service().cancel(request); }

  /// The JSON of `troupe status --json`.
  virtual Result<std::string> status_json() = 0;
  /// Cluster events from now on, until the cluster object ends.
  virtual Status subscribe(std::function<void(const ClusterEvent&)> listener) = 0;

  using OnProgress = std::function<void(const MovesProgress&)>;

  /// Moves all that a worker holds to the others, while requests go on; then it leaves, and its
  /// machine may be switched off. Waits until it has; `on_progress` is called by this thread
  /// meanwhile. Returns a sentence for people. Errors: kNotFound (no such node), kInvalidArgument
  /// (the last one, or one that is being drained), kResourceExhausted (the others have no room: it
  /// serves on), kUnavailable, kDeadlineExceeded (the head no longer answers).
  Result<std::string> drain(NodeId node, const OnProgress& on_progress = {});
  /// Lays the experts out for the load of late, and waits until they are there. As drain().
  Result<std::string> rebalance(const OnProgress& on_progress = {});

  virtual GenerationService& service() = 0;
  /// The CAF system that the cluster's actors live in: spawn your own there (see actors/api/caf.h).
  virtual caf::actor_system& system() = 0;

  /// Work for when the cluster begins to end, by number, so that it can be taken back: what lives
  /// in system() for as long as the cluster is told here that it is over.
  class Endings {
   public:
    std::uint64_t add(std::function<void()> work);
    void remove(std::uint64_t number);
    void run();  ///< each once

   private:
    std::mutex mutex_;
    std::uint64_t last_ = 0;                                  // guarded by mutex_
    std::map<std::uint64_t, std::function<void()>> waiting_;  // guarded by mutex_
  };
  const std::shared_ptr<Endings>& endings() const { return endings_; }

 private:
  /// follow_operation() with a session of this cluster.
  virtual Result<std::string> operate(
      const std::function<Status(ClientSession&)>& ask,
      const std::function<void(const OperationProgress&)>& on_progress) = 0;
  template <class Query>
  Result<std::string> operate_with(Query query, const OnProgress& on_progress);

  const std::shared_ptr<Endings> endings_ = std::make_shared<Endings>();
};

}  // namespace troupe
