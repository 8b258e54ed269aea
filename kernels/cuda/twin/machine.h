#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "kernels/grid.h"
#include "runtime/split_mix.h"

namespace troupe::kernels::cuda_twin {

class Cta;
class Traffic;
class TensorWork;
class Watch;
using Site = std::source_location;

/// A kernel with its arguments, as a machine runs it.
struct Program {
  using Thread = void (*)(const void* kernel, Cta& cta);
  Thread thread = nullptr;
  const void* kernel = nullptr;
  int threads = 0;
  std::size_t shared_bytes = 0;
  bool meets = false;  ///< threads wait for each other, or share memory; else each runs alone
};

/// In which order an mma adds its sixteen products to what it is given. NVIDIA does not say; an
/// H100's are known (tests/gpu/instructions.txt).
enum class MmaOrder : std::uint8_t {
  kRoundedOnce,  ///< in float64, k ascending, then rounded: what the twin takes where nobody asks
  kAscending,    ///< in float32, k ascending
  kDescending,
  kAligned,  ///< all at once, cut to what the largest of them leaves of 26 bits: an H100's
};
inline constexpr int kMmaOrders = 4;

/// A place for one CTA on a multiprocessor of the twin: runs its threads, each as a fiber, in an
/// order that a seed chooses. A thread runs until it waits: at a barrier for all threads of its
/// CTA, at a shuffle for the lanes that the mask names, at what a warp does together for its lanes.
/// One that polls memory for another CTA lets all others run before each look.
///
///     runnable ──► at a barrier ─── all are there, at the same one ──► runnable
///        │    ├──► at a shuffle ─── all of the mask are there ───────► runnable, with its value
///        │    └──► together ─────── all 32 lanes are there ──────────► runnable, it is done
///        └───────► ended
///
/// A copy that goes on beside its thread lands at any moment up to the thread's wait for it; until
/// then its target is poison, and nobody may touch it.
///
/// What it finds wrong it notes and goes on with, so far as that is possible.
class Machine {
 public:
  explicit Machine(std::uint64_t seed, MmaOrder mma_order = {})
      : random_(seed), mma_order_(mma_order) {}

  void run(const Program& program, Block block);
  /// The same in steps, between which CTAs of other machines may go on: begin() and then advance()
  /// until it has ended.
  enum class Step : std::uint8_t {
    kEnded,
    kWent,
    kPolled,  ///< found nothing but what it had seen before
  };
  void begin(const Program& program, Block block);
  Step advance();
  /// It polls for what nobody will write. `awaited`: whom it waits for, in words.
  void abandon(const char* awaited);
  /// The first thing found wrong since it was asked last, in words; empty: nothing.
  std::string take_finding() { return std::exchange(finding_, {}); }

  // What threads ask for; `thread_` is the one that runs.
  int thread() const { return thread_; }
  Block block() const { return block_; }
  void barrier(const Site& site);
  std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int from, const Site& site);
  /// `what` is done once all 32 lanes of the warp are there, with what each has brought; or all
  /// `lanes` of some warps beside each other, counted from the CTA's first.
  using Together = void (*)(Machine& machine, void* const* lanes);
  void together(Together what, void* mine, const Site& site, int lanes = 32);
  MmaOrder mma_order() const { return mma_order_; }
  /// Sixteen bytes to shared memory, or zeros where `from` is null.
  void copy_later(std::byte* to, const std::byte* from);
  void commit_copies();
  /// Until all but the last `pending` groups of the thread's copies have landed.
  void wait_copies(int pending);
  std::byte* shared(std::size_t at, std::size_t bytes);
  /// False: there is no such memory.
  bool read_shared(const std::byte* from, std::size_t bytes);
  /// Sixteen bytes that a lane names for all lanes of its warp.
  bool read_row(int lane, const std::byte* from);
  bool write_shared(const std::byte* to, std::size_t bytes);
  /// What tensor cores do beside the threads (wgmma.h).
  TensorWork& tensor_work();
  /// Sixteen bytes at `at` of shared memory that tensor cores read; 0xff if there are none.
  void read_matrix(std::size_t at, std::byte* to);
  /// From now on tensor cores see what the thread has written to shared memory.
  void fence_copies();
  std::size_t place_of(const std::byte* shared) const;
  /// A thing that is wrong, of the thread that runs.
  void wrong(const std::string& what);
  /// For what may happen or not.
  std::uint64_t random() { return random_.next(); }
  /// Of a load of that many bytes, from a multiple of as many.
  void load(const void* address, std::size_t bytes, const Site& site);
  /// A word of global memory that another CTA is to write, as it is once others have run.
  std::uint32_t poll(const std::uint32_t* word, const Site& site);
  bool last_of(std::uint32_t* came, std::uint32_t count, const Site& site);
  /// What other CTAs of the launch wrote.
  void load_joined(const void* address, std::size_t bytes, const Site& site);
  /// Counts what its warps move from now on; null: no more.
  void count(Traffic* traffic) { traffic_ = traffic; }
  /// Tells it where CTAs come together; null: no more.
  void watched_by(Watch* watch) { watch_ = watch; }

 private:
  enum class State : std::uint8_t { kRunnable, kAtBarrier, kAtShuffle, kTogether, kEnded };
  /// Of a word of shared memory: who touched it last, and between which barriers.
  struct Word {
    std::uint32_t written = 0, read = 0;  ///< the stretch between barriers, 0: never
    std::int16_t writer = 0, reader = 0;
    std::uint32_t awaited = 0;  ///< the CTA's first stretch: a copy is on its way
    std::uint64_t write = 0;    ///< the last one's number
  };
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    int group = 0;
    bool landed = false;
  };
  struct Thread;
  struct Fibers;

  Thread& thread_at(int thread) const;
  void start(int thread);
  void yield();
  void run_alone();
  bool run_round();
  void finish();
  bool release_barrier();
  bool release_warps();
  bool release_shuffle(int first, int last);
  bool release_together(int first, int lanes);
  void check_aligned(const void* address, std::size_t bytes);
  bool complete(int first, std::uint32_t mask, const Site& site) const;
  void land_some(Thread& thread);
  static void land(Copy& copy);
  void read_words(std::size_t at, std::size_t bytes, bool of_warp);
  std::uint64_t fenced_of(int thread) const;
  void stuck();
  void clear_shared();
  bool within_shared(const std::byte* address, std::size_t bytes, std::size_t& at);
  void shuffle_order();
  template <class... Parts>
  void found(const Parts&... parts);

  SplitMix random_;
  MmaOrder mma_order_;
  std::shared_ptr<Fibers> fibers_;
  std::vector<int> order_;
  Program program_;
  Block block_;
  int thread_ = 0, ended_ = 0;
  std::vector<std::uint32_t> shared_;
  std::vector<Word> words_;
  std::uint32_t stretch_ = 0, first_stretch_ = 0;
  std::uint64_t writes_ = 0;
  std::vector<std::shared_ptr<TensorWork>> tensor_work_;  ///< of four warps each
  std::string finding_;
  Traffic* traffic_ = nullptr;
  Watch* watch_ = nullptr;
  bool last_ = false;  ///< the CTA was the last that came
  std::map<const void*, std::uint32_t> polled_;  ///< what was seen there
  bool went_ = false;                            ///< in this round some thread did more than poll
};

}  // namespace troupe::kernels::cuda_twin
