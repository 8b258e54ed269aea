// What a message between two actors of one process costs: time, and allocations.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <new>

#include "actors/base/caf_host.h"
#include "actors/base/shell.h"
#include "actors/control/caf_system.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using namespace troupe;

struct Bounced {
  std::uint64_t left = 0;
};
struct BallInbox {
  static constexpr ActorKind kKind = ActorKind::kReplica;
  using wire = Wire<StepAbort, Undeliverable>;
  using local = Local<Bounced>;
};

/// Plays a ball back until it has bounced often enough.
class Player {
 public:
  using Inbox = BallInbox;
  using Effects = troupe::Effects<>;

  Player(const Ref<BallInbox>& other, std::promise<void>* done) : other_(other), done_(done) {}
  void on(const StepAbort& ball, const Envelope&, TimePoint, Effects& effects) {
    if (ball.step.value == 0) return done_->set_value();
    effects.send(other_, StepAbort{0, StepId{ball.step.value - 1}});
  }
  void on(const Undeliverable&, const Envelope&, TimePoint, Effects&) {}
  void on(Bounced ball, TimePoint, Effects& effects) {
    if (ball.left == 0) return done_->set_value();
    effects.send(other_, Bounced{ball.left - 1});
  }
  void on_wake(TimePoint, Effects&) {}
  void end_turn(TimePoint, Effects&) {}
  std::string violation() const { return {}; }

 private:
  Ref<BallInbox> other_;
  std::promise<void>* done_;
};

template <class Serve>
void measure(const char* what, std::promise<void>& done, const Serve& serve) {
  constexpr std::uint64_t kBounces = 400'000;
  double best = 1e9, allocated = 0;
  for (int round = 0; round < 9; ++round) {
    done = {};
    auto ended = done.get_future();
    const std::uint64_t before = allocations;
    const auto begin = std::chrono::steady_clock::now();
    serve(kBounces);
    ended.wait();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / kBounces);
    allocated = static_cast<double>(allocations - before) / kBounces;
  }
  std::printf("%s: %.3f us and %.2f allocations a message (best of 9)\n", what, best, allocated);
}

}  // namespace

int main() {
  auto caf = CafSystem::make();
  if (!caf.ok()) return 1;
  Post post;
  CafHost host((*caf)->system(), post);
  const Ref<BallInbox> a(NodeId{1}, Incarnation{1}, 0), b(NodeId{1}, Incarnation{1}, 1);
  std::promise<void> done;
  const auto start = [&](const Ref<BallInbox>& self, const Ref<BallInbox>& other) {
    host.spawn(
        self.address,
        [&](const Life&) {
          return std::make_unique<Shell<Player>>(host, self.address, Player(other, &done));
        },
        {});
  };
  start(a, b);
  start(b, a);
  measure("wire message ", done, [&](std::uint64_t n) {
    post.send({b.address, a.address, message_of(StepAbort{0, StepId{n}})});
  });
  measure("local message", done, [&](std::uint64_t n) { post.tell(a, Bounced{n}); });
}
