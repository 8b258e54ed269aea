#include "kernels/cuda/twin/machine.h"

#include <boost/context/fiber.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include "kernels/cuda/twin/cta.h"
#include "kernels/cuda/twin/stacks.h"
#include "kernels/cuda/twin/traffic.h"
#include "kernels/cuda/twin/watch.h"
#include "kernels/cuda/twin/wgmma.h"

namespace troupe::kernels::cuda_twin {
namespace {

constexpr std::uint32_t kPoison = 0xffffffffu;  // a NaN, and no index
constexpr std::int16_t kSeveral = -1;           // readers of a word
constexpr int kWarp = 32, kGroup = 128;
constexpr int kPolledMax = 64;  // steps of a CTA that runs by itself

std::string line(const Site& site) {
  const std::string_view file = site.file_name();
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(site.line());
}

bool same(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

struct Machine::Thread {
  boost::context::fiber fiber;
  State state = State::kRunnable;
  Site site;
  std::uint32_t mask = 0;
  int from = 0;
  std::uint64_t value = 0;
  Together what = nullptr;
  void* mine = nullptr;
  int lanes = 0;             ///< that do something together
  std::uint64_t fenced = 0;  ///< the last write that tensor cores see
  std::vector<Copy> copies;
  int group = 0;       ///< of the copies that come next
  bool again = false;  ///< its last look found what its CTA had seen there
};

struct Machine::Fibers {
  Stacks stacks;
  std::vector<Thread> threads;  // they go before their stacks
  boost::context::fiber scheduler;
};

Machine::Thread& Machine::thread_at(int thread) const {
  return fibers_->threads[static_cast<std::size_t>(thread)];
}

template <class... Parts>
void Machine::found(const Parts&... parts) {
  if (!finding_.empty()) return;
  std::ostringstream out;
  out << "CTA (" << block_.x << ", " << block_.y << "), thread " << thread_ << ": ";
  (out << ... << parts);
  finding_ = out.str();
}

void Machine::run(const Program& program, Block block) {
  begin(program, block);
  for (int polled = 0; polled < kPolledMax;) {
    const Step step = advance();
    if (step == Step::kEnded) return;
    polled = step == Step::kPolled ? polled + 1 : 0;
  }
  abandon("a CTA that is not resident");
}

void Machine::run_alone() {
  order_.resize(static_cast<std::size_t>(program_.threads));
  std::iota(order_.begin(), order_.end(), 0);
  shuffle_order();
  for (const int i : order_) {
    thread_ = i;
    Cta cta(*this);
    program_.thread(program_.kernel, cta);
  }
}

void Machine::begin(const Program& program, Block block) {
  program_ = program;
  block_ = block;
  last_ = false;
  if (!program.meets) return;
  if (fibers_ == nullptr) fibers_ = std::make_shared<Fibers>();
  clear_shared();
  polled_.clear();
  fibers_->stacks.guard(program.threads);
  fibers_->threads.resize(static_cast<std::size_t>(program.threads));
  ended_ = 0;
  for (int i = 0; i < program.threads; ++i) start(i);
}

Machine::Step Machine::advance() {
  if (!program_.meets) {
    run_alone();
    return Step::kEnded;
  }
  const bool ran = run_round();
  const bool released = release_warps() || release_barrier();
  if (ended_ < program_.threads && (released || ran))
    return released || went_ ? Step::kWent : Step::kPolled;
  if (ended_ < program_.threads) stuck();
  finish();
  return Step::kEnded;
}

/// Fibers that still wait are unwound.
void Machine::finish() {
  fibers_->threads.clear();
  for (const auto& work : tensor_work_)
    if (!work->idle() && finding_.empty()) found("ends with tensor cores at work");
  tensor_work_.clear();
  if (traffic_) traffic_->settle();
  clear_shared();
}

void Machine::abandon(const char* awaited) {
  const auto& all = fibers_->threads;
  const auto polls = [](const Thread& t) { return t.state == State::kRunnable; };
  const auto one = std::find_if(all.begin(), all.end(), polls);
  thread_ = static_cast<int>(one - all.begin());
  found("waits at ", line(one->site), " for ", awaited);
  finish();
}

std::uint32_t Machine::poll(const std::uint32_t* word, const Site& site) {
  const auto look = [&] { return __atomic_load_n(word, __ATOMIC_ACQUIRE); };
  if (!program_.meets) {
    found("waits at ", line(site), " for another CTA in a kernel whose threads run alone");
    return look();
  }
  Thread& t = thread_at(thread_);
  t.site = site;
  yield();
  const std::uint32_t value = look();
  const auto [seen, first] = polled_.try_emplace(word, value);
  t.again = !first && seen->second == value;
  seen->second = value;
  return value;
}

void Machine::start(int thread) {
  const auto body = [this](boost::context::fiber&& from) {
    fibers_->scheduler = std::move(from);
    Cta cta(*this);
    program_.thread(program_.kernel, cta);
    return std::move(fibers_->scheduler);
  };
  thread_at(thread).fiber =
      boost::context::fiber(std::allocator_arg, StackOf{&fibers_->stacks, thread}, body);
}

void Machine::yield() { fibers_->scheduler = std::move(fibers_->scheduler).resume(); }

/// Every thread that can, until it waits; whether there was one.
bool Machine::run_round() {
  order_.clear();
  for (int i = 0; i < program_.threads; ++i)
    if (thread_at(i).state == State::kRunnable) order_.push_back(i);
  shuffle_order();
  went_ = false;
  for (const int i : order_) {
    Thread& t = thread_at(i);
    thread_ = i;
    t.again = false;
    t.fiber = std::move(t.fiber).resume();
    went_ = went_ || !t.fiber || t.state != State::kRunnable || !t.again;
    if (t.fiber) continue;
    if (!t.copies.empty()) found("ends with copies on their way that it has not waited for");
    t.state = State::kEnded;
    ++ended_;
  }
  return !order_.empty();
}

void Machine::barrier(const Site& site) {
  if (!program_.meets)
    return found("waits at ", line(site), " in a kernel whose threads run alone");
  Thread& t = thread_at(thread_);
  t.state = State::kAtBarrier;
  t.site = site;
  land_some(t);
  yield();
}

bool Machine::release_barrier() {
  if (ended_ == program_.threads) return false;
  for (const Thread& t : fibers_->threads)
    if (t.state != State::kAtBarrier || !same(t.site, thread_at(0).site)) return false;
  for (Thread& t : fibers_->threads) t.state = State::kRunnable;
  if (traffic_) traffic_->settle();
  ++stretch_;
  return true;
}

std::uint64_t Machine::shuffle(std::uint32_t mask, std::uint64_t value, int from,
                               const Site& site) {
  if (!program_.meets) {
    found("shuffles at ", line(site), " in a kernel whose threads run alone");
    return 0;
  }
  const int lane = thread_ % kWarp;
  if ((mask >> lane & 1) == 0) {
    found("shuffles at ", line(site), " with a mask that does not name its lane ", lane);
    return 0;
  }
  if (from < 0 || from >= kWarp || (mask >> from & 1) == 0) {
    found("shuffles at ", line(site), " from lane ", from, ", which the mask does not name");
    return 0;
  }
  Thread& t = thread_at(thread_);
  t.state = State::kAtShuffle;
  t.site = site;
  t.mask = mask;
  t.from = from;
  t.value = value;
  yield();
  return t.value;
}

bool Machine::release_warps() {
  bool released = false;
  for (int first = 0; first < program_.threads; first += kWarp) {
    const int last = std::min(first + kWarp, program_.threads);
    if (release_together(first, kWarp) || release_shuffle(first, last)) released = true;
  }
  for (int first = 0; first < program_.threads; first += kGroup)
    if (release_together(first, kGroup)) released = true;
  return released;
}

/// Whether all lanes of a mask wait with it at the same shuffle.
bool Machine::complete(int first, std::uint32_t mask, const Site& site) const {
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    if (first + lane >= program_.threads) return false;
    const Thread& t = thread_at(first + lane);
    if (t.state != State::kAtShuffle || t.mask != mask || !same(t.site, site)) return false;
  }
  return true;
}

bool Machine::release_shuffle(int first, int last) {
  bool released = false;
  for (int i = first; i < last; ++i) {
    const Thread& waiting = thread_at(i);
    if (waiting.state != State::kAtShuffle || !complete(first, waiting.mask, waiting.site))
      continue;
    const std::uint32_t mask = waiting.mask;
    std::uint64_t values[kWarp] = {};
    for (int lane = 0; lane < last - first; ++lane) values[lane] = thread_at(first + lane).value;
    for (int lane = 0; lane < last - first; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Thread& t = thread_at(first + lane);
      t.value = values[t.from];
      t.state = State::kRunnable;
    }
    released = true;
  }
  return released;
}

void Machine::together(Together what, void* mine, const Site& site, int lanes) {
  if (!program_.meets)
    return found("does together with its warp, at ", line(site),
                 ", what a kernel whose threads run alone cannot");
  Thread& t = thread_at(thread_);
  t.state = State::kTogether;
  t.site = site;
  t.what = what;
  t.mine = mine;
  t.lanes = lanes;
  land_some(t);
  yield();
}

bool Machine::release_together(int first, int lanes) {
  if (first + lanes > program_.threads) return false;
  void* of_lanes[kGroup];
  for (int lane = 0; lane < lanes; ++lane) {
    const Thread& t = thread_at(first + lane);
    if (t.state != State::kTogether || t.lanes != lanes || !same(t.site, thread_at(first).site))
      return false;
    of_lanes[lane] = t.mine;
  }
  thread_ = first;
  thread_at(first).what(*this, of_lanes);
  for (int lane = 0; lane < lanes; ++lane) thread_at(first + lane).state = State::kRunnable;
  return true;
}

void Machine::copy_later(std::byte* to, const std::byte* from) {
  if (!program_.meets) return found("copies to shared memory, of which it has none");
  constexpr std::size_t kBytes = sizeof(Quad);
  check_aligned(to, kBytes);
  check_aligned(from, kBytes);
  std::size_t at = 0;
  if (!write_shared(to, kBytes) || !within_shared(to, kBytes, at)) return;
  for (std::size_t w = at / 4; w < (at + kBytes) / 4; ++w) words_[w].awaited = first_stretch_;
  std::memset(to, 0xff, kBytes);
  if (traffic_ && from != nullptr)
    traffic_->note(Traffic::Kind::kLoad, thread_, 0, reinterpret_cast<std::uintptr_t>(from),
                   kBytes);
  Thread& t = thread_at(thread_);
  t.copies.push_back({to, from, t.group, false});
}

void Machine::commit_copies() {
  if (program_.meets) ++thread_at(thread_).group;
}

void Machine::wait_copies(int pending) {
  if (!program_.meets) return;
  Thread& t = thread_at(thread_);
  std::erase_if(t.copies, [&](Copy& copy) {
    if (copy.group >= t.group - pending) return false;
    land(copy);
    std::size_t at = 0;
    within_shared(copy.to, sizeof(Quad), at);
    for (std::size_t w = at / 4; w < at / 4 + sizeof(Quad) / 4; ++w) {
      words_[w].awaited = 0;
      words_[w].written = stretch_;  // by this thread, whom alone the wait tells of it
      words_[w].write = ++writes_;
    }
    return true;
  });
}

void Machine::land(Copy& copy) {
  if (copy.landed) return;
  copy.landed = true;
  if (copy.from == nullptr)
    std::memset(copy.to, 0, sizeof(Quad));
  else
    std::memcpy(copy.to, copy.from, sizeof(Quad));
}

void Machine::wrong(const std::string& what) { found(what); }

void Machine::fence_copies() {
  if (program_.meets) thread_at(thread_).fenced = writes_;
}
std::uint64_t Machine::fenced_of(int thread) const { return thread_at(thread).fenced; }

/// Any of a thread's copies may land while others run.
void Machine::land_some(Thread& thread) {
  for (Copy& copy : thread.copies)
    if (random_.next() % 4 == 0) land(copy);
}

/// Nobody can go on: says who waits where, of each kind the first.
void Machine::stuck() {
  std::string who;
  const char* const kWaits[] = {"", " waits at the barrier ", " waits at the shuffle ",
                                " waits for its warp at ", " has ended"};
  const std::vector<Thread>& all = fibers_->threads;
  for (auto t = all.begin(); t != all.end(); ++t) {
    const auto alike = [&](const Thread& other) {
      return other.state == t->state && (t->state == State::kEnded || same(other.site, t->site));
    };
    if (std::any_of(all.begin(), t, alike)) continue;
    who += (who.empty() ? "" : ", ") + ("thread " + std::to_string(t - all.begin())) +
           kWaits[static_cast<std::size_t>(t->state)] +
           (t->state == State::kEnded ? "" : line(t->site));
  }
  found("threads wait for others that never come: ", who);
}

void Machine::clear_shared() {
  shared_.assign((program_.shared_bytes + 15) / 16 * 4, kPoison);
  if (words_.size() < shared_.size()) words_.resize(shared_.size());
  first_stretch_ = ++stretch_;
}

void Machine::shuffle_order() {
  for (std::size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[random_.next() % i]);
}

std::byte* Machine::shared(std::size_t at, std::size_t bytes) {
  if (!program_.meets || at + bytes > program_.shared_bytes)
    found("takes shared memory up to byte ", at + bytes, " of ", program_.shared_bytes);
  return reinterpret_cast<std::byte*>(shared_.data()) + at;
}

bool Machine::within_shared(const std::byte* address, std::size_t bytes, std::size_t& at) {
  at = static_cast<std::size_t>(address - reinterpret_cast<std::byte*>(shared_.data()));
  if (at + bytes <= program_.shared_bytes) return true;
  found("touches byte ", at, " of ", program_.shared_bytes, " of shared memory");
  return false;
}

bool Machine::read_shared(const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
  if (!within_shared(from, bytes, at)) return false;
  if (traffic_) traffic_->note(Traffic::Kind::kSharedRead, thread_, 0, at, bytes);
  read_words(at, bytes, false);
  return true;
}

bool Machine::read_row(int lane, const std::byte* from) {
  thread_ = thread_ / kWarp * kWarp + lane;
  std::size_t at = 0;
  check_aligned(from, sizeof(Quad));
  if (!within_shared(from, sizeof(Quad), at)) return false;
  if (traffic_) traffic_->note(Traffic::Kind::kSharedRead, thread_, 0, at, sizeof(Quad));
  read_words(at, sizeof(Quad), true);
  return true;
}

/// `of_warp`: what all lanes of a warp get may have been written by none of them since the last
/// barrier.
void Machine::read_words(std::size_t at, std::size_t bytes, bool of_warp) {
  const auto self = static_cast<std::int16_t>(thread_);
  for (std::size_t w = at / 4; w < (at + bytes + 3) / 4; ++w) {
    Word& word = words_[w];
    if (word.awaited == first_stretch_)
      found("reads word ", w, " of shared memory, to which a copy of thread ", word.writer,
            " is on its way that it has not waited for");
    else if (word.written < first_stretch_)
      found("reads word ", w, " of shared memory, which nobody has written");
    else if (word.written == stretch_ && (of_warp || word.writer != self))
      found("reads word ", w, " of shared memory, which thread ", word.writer,
            " writes since the last barrier");
    const bool several = of_warp || (word.read == stretch_ && word.reader != self);
    word.reader = several ? kSeveral : self;
    word.read = stretch_;
  }
}

bool Machine::write_shared(const std::byte* to, std::size_t bytes) {
  std::size_t at = 0;
  if (!within_shared(to, bytes, at)) return false;
  if (traffic_) traffic_->note(Traffic::Kind::kSharedWrite, thread_, 0, at, bytes);
  const auto self = static_cast<std::int16_t>(thread_);
  for (std::size_t w = at / 4; w < (at + bytes + 3) / 4; ++w) {
    Word& word = words_[w];
    if (word.awaited == first_stretch_)
      found("writes word ", w, " of shared memory, to which a copy of thread ", word.writer,
            " is on its way");
    else if (word.written == stretch_ && word.writer != self)
      found("writes word ", w, " of shared memory, as thread ", word.writer,
            " does since the last barrier");
    else if (word.read == stretch_ && word.reader != self)
      found("writes word ", w, " of shared memory, which others read since the last barrier");
    word.written = stretch_;
    word.writer = self;
    word.write = ++writes_;
  }
  return true;
}

void Machine::load(const void* address, std::size_t bytes, const Site& site) {
  check_aligned(address, bytes);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (traffic_) traffic_->note(Traffic::Kind::kLoad, thread_, site.line(), at, bytes);
}

bool Machine::last_of(std::uint32_t* came, std::uint32_t count, const Site& site) {
  barrier(site);
  if (thread_ == 0) {
    const std::uint32_t before = __atomic_fetch_add(came, 1u, __ATOMIC_ACQ_REL);
    if (before >= count)
      found("comes at ", line(site), " to a word that holds ", before, ", as the last of ", count);
    last_ = before + 1 == count;
    if (last_) __atomic_store_n(came, 0u, __ATOMIC_RELEASE);
    if (watch_ != nullptr) watch_->came(came, last_);
  }
  barrier(site);
  return last_;
}

void Machine::load_joined(const void* address, std::size_t bytes, const Site& site) {
  if (!last_) found("loads at ", line(site), " what other CTAs write, and is not their last");
  load(address, bytes, site);
}

void Machine::check_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    found("loads ", bytes, " bytes at once from ", address, ", which is no multiple");
}

}  // namespace troupe::kernels::cuda_twin
