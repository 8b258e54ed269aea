#include "actors/device/answer_check.h"

#include <sched.h>

#include <algorithm>

#include "kernels/backend.h"
#include "runtime/host.h"
#include "runtime/numa.h"

namespace troupe {
namespace {

/// The calling thread stays on one core meanwhile. Where that is not allowed, it runs where it is.
class Pinned {
 public:
  explicit Pinned(int core) { (void)run_on({core}); }
  ~Pinned() { (void)run_on(before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  const std::vector<int> before_ = allowed_processors();
};

}  // namespace

AnswerCheck::AnswerCheck(ThreadPool& threads, const kernels::Stream::Options& asked,
                         const std::vector<int>& cores, Duration round_takes)
    : threads_(threads),
      asked_(asked),
      cores_(cores.empty() ? allowed_processors() : cores),
      calls_a_round_(static_cast<std::size_t>(
          std::max<Duration::rep>(1, round_takes / std::chrono::seconds(1)))),
      given_(asked.accelerator == nullptr ? static_cast<std::size_t>(threads.threads()) : 1) {
  if (cores_.empty()) cores_.push_back(0);
}

Status AnswerCheck::begin(std::span<const Numerics> numerics, CpuFamily family) {
  items_.clear();
  next_ = 0;
  for (const Numerics n : numerics) {
    for (std::size_t i = 0; i < kernels::known_questions().size(); ++i) {
      items_.push_back({n, family, i, by_tensor_cores(n) ? 0 : kernels::known_answer(n, i)});
      ask(items_.back());
      // What tensor cores make of a sum nobody knows: what they made of it first is to stay.
      if (by_tensor_cores(n)) items_.back().answer = given_[0].answer;
      if (Status right = compare(items_.back()); !right.ok()) return right;
    }
  }
  return {};
}

bool AnswerCheck::agreed() const {
  return std::all_of(given_.begin(), given_.end(),
                     [&](const Given& given) { return given.answer == given_[0].answer; });
}

Status AnswerCheck::next() {
  const std::size_t count = (items_.size() + calls_a_round_ - 1) / calls_a_round_;
  for (std::size_t i = 0; i < count; ++i) {
    Item& item = items_[next_];
    ask(item);
    if (const Status right = compare(item); !right.ok()) return right;
    next_ = (next_ + 1) % items_.size();
    if (next_ == 0) ++round_;
  }
  return {};
}

/// Where there are more cores than threads, each round takes the next ones.
void AnswerCheck::ask(const Item& item) {
  if (asked_.accelerator != nullptr) {
    kernels::Stream::Options options = asked_;
    options.numerics = item.numerics;
    kernels::Stream stream(options);
    given_[0].answer = kernels::ask(stream, item.question);
    return;
  }
  threads_.on_each_thread([&](int thread) {
    const auto index = static_cast<std::size_t>(thread);
    const Pinned pinned(cores_[(index + round_ * given_.size()) % cores_.size()]);
    kernels::Stream stream({item.numerics, item.family, nullptr, asked_.backend});
    given_[index] = {kernels::ask(stream, item.question), sched_getcpu()};
  });
}

/// "linear (...) of bf16 (avx2) gave a wrong result on core 3 (compute thread 1)".
std::string AnswerCheck::who(const Item& item, std::size_t thread) const {
  const std::string asked = to_string(kernels::known_questions()[item.question]) + " of " +
                            std::string(to_string(item.numerics)) + " (";
  if (asked_.accelerator != nullptr)
    return asked + std::string(asked_.backend->name) + ") gave a wrong result";
  return asked + std::string(to_string(item.family)) + ") gave a wrong result on core " +
         std::to_string(given_[thread].core) + " (compute thread " + std::to_string(thread) + ")";
}

Status AnswerCheck::compare(Item& item) {
  const TimePoint time = now();
  for (std::size_t thread = 0; thread < given_.size(); ++thread) {
    if (given_[thread].answer == item.answer) continue;
    const auto since = std::chrono::duration_cast<std::chrono::seconds>(time - item.last_good);
    return internal_error(
        who(item, thread) + "; " +
        (item.last_good == TimePoint{}
             ? "it has given no right one since the start"
             : "its last right one was " + std::to_string(since.count()) + " s ago"));
  }
  item.last_good = time;
  return {};
}

}  // namespace troupe
