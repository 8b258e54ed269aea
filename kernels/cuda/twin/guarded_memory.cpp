#include "kernels/cuda/twin/guarded_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include "kernels/accelerator.h"

namespace troupe::kernels::cuda_twin {

/// What the signal handler knows of one.
struct GuardedMemory::Region {
  std::atomic<bool> used{false}, open{false};
  std::atomic<const std::byte*> begin{nullptr}, end{nullptr};
};

namespace {

using Region = GuardedMemory::Region;

constexpr std::size_t kRegionsMax = 64;

std::array<Region, kRegionsMax>& regions() {
  static std::array<Region, kRegionsMax> all;
  return all;
}

struct sigaction otherwise, otherwise_bus;  // the handlers that were there before ours

void say(const char* words) { (void)!write(STDERR_FILENO, words, std::strlen(words)); }

/// Says whose fault it is, and leaves the rest to the handler that was there: the access comes
/// again.
void on_fault(int signal, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Region& region : regions()) {
    if (!region.used || at < region.begin || at >= region.end) continue;
    say(region.open ? "a kernel of the CUDA twin touches device memory that nobody has taken\n"
                    : "the host touches memory of the CUDA twin: only ops and copies may\n");
    break;
  }
  sigaction(signal, signal == SIGBUS ? &otherwise_bus : &otherwise, nullptr);
}

/// Ours is the first that hears of a fault, whoever installed one since.
void watch_faults() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const int signal : {SIGSEGV, SIGBUS}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault) continue;
    (signal == SIGBUS ? otherwise_bus : otherwise) = now;
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(signal, &ours, nullptr);
  }
}

std::size_t whole(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

/// A file in memory that only this process knows.
int make_file(std::size_t bytes) {
  const int file = memfd_create("cuda-twin", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::__throw_bad_alloc();
  return file;
}

std::byte* reserve(int file, std::size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (p == MAP_FAILED) std::__throw_bad_alloc();
  return static_cast<std::byte*>(p);
}

Region& free_region() {
  for (Region& region : regions())
    if (!region.used.exchange(true)) return region;
  std::__throw_bad_alloc();
}

/// Small runs take more of the addresses than of the memory.
std::size_t span_of(std::size_t capacity) { return whole(2 * capacity, kPageBytes) + (1u << 30); }

}  // namespace

GuardedMemory::GuardedMemory(std::size_t bytes)
    : capacity_(bytes),
      span_(span_of(bytes)),
      file_(make_file(span_)),
      nothing_(make_file(0)),
      base_(reserve(file_, span_)),
      region_(free_region()),
      pages_(span_ - kPageBytes, kPageBytes, kPageBytes) {
  region_.begin = base_;
  region_.end = base_ + span_;
  map_guard(0, true);
  watch_faults();
}

/// A page of a file that has none cannot be touched, whatever its protection: so all pages can be
/// opened by one call.
void GuardedMemory::map_guard(std::size_t at, bool guard) {
  const int file = guard ? nothing_ : file_;
  void* const page = mmap(base_ + at, kPageBytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                          file, guard ? 0 : static_cast<off_t>(at));
  if (page == MAP_FAILED) std::__throw_bad_alloc();
}

GuardedMemory::~GuardedMemory() {
  region_.begin = region_.end = nullptr;
  region_.used = false;
  munmap(base_, span_);
  close(file_);
  close(nothing_);
}

std::byte* GuardedMemory::take(std::size_t bytes) {
  const std::size_t rounded = whole(std::max<std::size_t>(bytes, 1), Accelerator::kAlignment);
  const std::lock_guard lock(mutex_);
  if (rounded < bytes || rounded > capacity_ - used_) std::__throw_bad_alloc();
  const auto run = pages_.take(rounded);
  if (!run) std::__throw_bad_alloc();
  std::byte* const pages = pages_of(*run);
  std::byte* const begin = pages + run->bytes - rounded;
  map_guard(static_cast<std::size_t>(pages - base_) + run->bytes, true);
  mprotect(pages, run->bytes, PROT_READ | PROT_WRITE);
  std::memset(begin, 0xff, std::min(bytes, kPoisonBytes));
  if (!region_.open) mprotect(pages, run->bytes, PROT_NONE);
  taken_[begin] = *run;
  used_ += run->bytes - static_cast<std::size_t>(begin - pages);
  return begin;
}

void GuardedMemory::give_back(std::byte* begin) {
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(begin);
  const AddressPool::Run run = taken->second;
  std::byte* const pages = pages_of(run);
  (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, pages - base_,
                  static_cast<off_t>(run.bytes));
  mprotect(pages, run.bytes, PROT_NONE);
  map_guard(static_cast<std::size_t>(pages - base_) + run.bytes, false);
  used_ -= run.bytes - static_cast<std::size_t>(begin - pages);
  taken_.erase(taken);
  pages_.give_back(run);
}

void GuardedMemory::protect_all(int protection) {
  const std::lock_guard lock(mutex_);
  if (taken_.empty()) return;
  const AddressPool::Run& last = taken_.rbegin()->second;
  mprotect(base_, static_cast<std::size_t>(pages_of(last) - base_) + last.bytes, protection);
}

GuardedMemory::Open::Open(GuardedMemory& memory) : memory_(memory), gate_(memory.gate_) {
  watch_faults();
  memory_.region_.open = true;
  memory_.protect_all(PROT_READ | PROT_WRITE);
}

GuardedMemory::Open::~Open() {
  memory_.protect_all(PROT_NONE);
  memory_.region_.open = false;
}

}  // namespace troupe::kernels::cuda_twin
