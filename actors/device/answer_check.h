#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/known_answers.h"
#include "kernels/stream.h"
#include "runtime/clock.h"
#include "runtime/cpu_family.h"
#include "runtime/limits.h"
#include "runtime/numerics.h"
#include "runtime/result.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// Whether each compute thread computes what it must: it is asked questions whose answers ship in
/// the program (kernels/known_answers.h), on one core after the other. Used on the thread that the
/// pool is used from.
class AnswerCheck {
 public:
  /// With an accelerator in `asked`, that is asked, once, and not the threads. `cores`: those that
  /// the threads run on; none: all that this process may use. Of next() a round takes so long.
  explicit AnswerCheck(ThreadPool& threads, const kernels::Stream::Options& asked = {},
                       const std::vector<int>& cores = {},
                       Duration round_takes = limits::kKnownAnswersEvery);

  /// Asks everything that those numerics are asked, here and in later rounds, with the kernels of
  /// that family. Of numerics by tensor cores, whose sums differ from generation to generation, the
  /// first answers count as known. kInternal: a wrong answer, with op, family, thread, core and the
  /// last good one.
  Status begin(std::span<const Numerics> numerics, CpuFamily family);
  /// All threads gave the same wrong answer: it may be the family's kernels that do not fit this
  /// processor, and not a core that is broken.
  bool agreed() const;
  /// Asks the next few; called once a second.
  Status next();

 private:
  struct Item {
    Numerics numerics = Numerics::kReference;
    CpuFamily family = CpuFamily::kBaseline;
    std::size_t question = 0;
    std::uint64_t answer = 0;
    TimePoint last_good{};  ///< on all threads
  };
  struct Given {
    std::uint64_t answer = 0;
    int core = 0;
  };
  void ask(const Item& item);
  std::string who(const Item& item, std::size_t thread) const;
  Status compare(Item& item);

  ThreadPool& threads_;
  const kernels::Stream::Options asked_;
  std::vector<int> cores_;           ///< that this process may use
  const std::size_t calls_a_round_;  ///< of next()
  std::vector<Item> items_;
  std::vector<Given> given_;  ///< by thread, to the newest question
  std::size_t next_ = 0, round_ = 0;
};

}  // namespace troupe
