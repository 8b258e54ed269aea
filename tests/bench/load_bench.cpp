/// How fast the weights of a whole model come into memory, by the threads of one worker.
///
///     load_bench MODEL THREADS ROUNDS
///
/// Reads, checks, digests and packs all of it and lets go of it, some times over. Prints the bytes
/// of weights packed, and the least seconds that it took: {"bytes": B, "load_s": S}.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "actors/worker/checkpoint_model.h"
#include "actors/worker/file_source.h"
#include "model/spec/sizes.h"
#include "runtime/log.h"
#include "tests/actors/effects.h"
#include "tests/actors/mail_queue.h"
#include "tests/bench/timing.h"

using namespace troupe;
using namespace troupe::timing;

namespace {

[[noreturn]] void end_with(const std::string& message) {
  std::fprintf(stderr, "load_bench: %s\n", message.c_str());
  std::exit(1);
}

class Agent {
 public:
  explicit Agent(int threads) : source_(post_, threads, {}) {
    post_.attach(ref_.address, mail_);
    source_.listen(ref_);
  }
  ~Agent() { mail_->hold(false); }

  InspectedCheckpoint inspect(const std::string& folder) {
    source_.inspect(folder);
    auto found = wait<CheckpointInspected>().checkpoint;
    if (!found.ok()) end_with(found.error().message);
    return *found;
  }
  void read(const ReadOrder& order) {
    source_.read(order);
    const Status read = wait<PartRead>().status;
    if (!read.ok()) end_with(read.error().message);
  }
  void let_go() { pieces_.clear(); }

 private:
  template <class T>
  T wait() {
    while (const auto next = mail_->next(std::chrono::minutes(1))) {
      if (const auto* found = testing::local<NodeAgentInbox, T>(*next)) return *found;
      if (const auto* piece = testing::local<NodeAgentInbox, PieceRead>(*next))
        pieces_.push_back(*piece);
    }
    end_with("nothing came");
  }

  Post post_;
  Ref<NodeAgentInbox> ref_{NodeId{1}, Incarnation{1}};
  std::shared_ptr<testing::MailQueue> mail_ = std::make_shared<testing::MailQueue>();
  FileSource source_;
  std::vector<PieceRead> pieces_;
};

ReadOrder all_of(const std::string& folder, const InspectedCheckpoint& checkpoint) {
  const ModelSpec& spec =
      *static_cast<const CheckpointModel&>(*checkpoint.sizes).spec();
  ReadOrder order;
  order.numerics = Numerics::kBf16;
  order.model_path = folder;
  order.checkpoint_hash = checkpoint.hash;
  for (std::int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
    for (std::int32_t e = 0; l.has_experts() && e < l.experts.gate.experts; ++e)
      order.experts.push_back({layer, e});
  }
  order.shards.push_back({0, spec.num_layers() - 1});
  return order;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: load_bench MODEL THREADS ROUNDS\n");
    return 2;
  }
  if (!init_log({"warn", "load_bench", false}).ok()) return 1;
  Agent agent(std::atoi(argv[2]));
  const InspectedCheckpoint checkpoint = agent.inspect(argv[1]);
  ReadOrder order = all_of(argv[1], checkpoint);
  double best = 1e9;
  for (int round = 0; round < std::atoi(argv[3]); ++round) {
    ++order.version.value;
    const double start = seconds();
    agent.read(order);
    const double took = seconds() - start;
    std::fprintf(stderr, "round %d: %.3f s\n", round, took);
    best = std::min(best, took);
    agent.let_go();
  }
  const ModelSpec& spec = *static_cast<const CheckpointModel&>(*checkpoint.sizes).spec();
  std::printf("{\"bytes\": %llu, \"load_s\": %.4f}\n",
              static_cast<unsigned long long>(model_bytes(spec, Numerics::kBf16)), best);
}
