/// The ceiling of this machine: how fast so many threads read given bytes in a given order.
///
///     read_bench memory THREADS SECONDS < stretches
///     read_bench files THREADS FILE...
///     read_bench touch THREADS BYTES
///
/// `memory` reads "TOTAL_BYTES", then lines "OFFSET BYTES", from the standard input: what one pass
/// reads of a memory of that size, each stretch shared evenly by the threads. `files` reads files
/// with pread into buffers, which tells of the page cache if they are in it. `touch` writes to each
/// page of fresh memory, which the system (and what it may be a guest of) gives then. All print
/// bytes per second.
#include <fcntl.h>
#include <immintrin.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/thread_pool.h"
#include "tests/bench/timing.h"

using namespace troupe;
using namespace troupe::timing;

namespace {

constexpr std::uint64_t kLine = 64, kPage = 4096;

struct Stretch {
  std::uint64_t offset = 0, bytes = 0;
};

/// Whole cache lines. They are asked for 4 KiB ahead, as the hardware alone stops at each page.
[[gnu::target("avx2")]] std::uint64_t read_lines(const std::byte* from, std::uint64_t lines) {
  __m256i sum = _mm256_setzero_si256(), other = sum;
  for (std::uint64_t i = 0; i < lines; ++i) {
    const auto* p = reinterpret_cast<const __m256i*>(from + i * kLine);
    _mm_prefetch(reinterpret_cast<const char*>(p) + 4096, _MM_HINT_T0);
    sum = _mm256_add_epi64(sum, _mm256_load_si256(p));
    other = _mm256_add_epi64(other, _mm256_load_si256(p + 1));
  }
  sum = _mm256_add_epi64(sum, other);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sum, 0) ^ _mm256_extract_epi64(sum, 1) ^
                                    _mm256_extract_epi64(sum, 2) ^ _mm256_extract_epi64(sum, 3));
}

double read_memory(ThreadPool& pool, double budget) {
  std::uint64_t total = 0;
  std::cin >> total;
  std::vector<Stretch> stretches;
  std::uint64_t bytes = 0;
  for (Stretch s; std::cin >> s.offset >> s.bytes;) {
    s = {s.offset / kLine, s.bytes / kLine};
    stretches.push_back(s);
    bytes += s.bytes * kLine;
  }
  Buffer memory = Buffer::in_huge_pages((total / kLine + 1) * kLine);
  const auto threads = static_cast<std::uint64_t>(pool.threads());
  const auto share = [&](const Stretch& s, std::uint64_t thread) {
    const std::uint64_t begin = s.bytes * thread / threads, end = s.bytes * (thread + 1) / threads;
    return Stretch{s.offset + begin, end - begin};
  };
  pool.on_each_thread([&](int thread) {
    const Stretch s = share({0, memory.size() / kLine}, static_cast<std::uint64_t>(thread));
    std::fill_n(memory.data() + s.offset * kLine, s.bytes * kLine, std::byte{1});
  });
  std::vector<std::uint64_t> sums(threads * 8);  // a cache line each
  double best = 0;
  for (const double end = seconds() + budget; seconds() < end;) {
    const double start = seconds();
    pool.on_each_thread([&](int thread) {
      const auto t = static_cast<std::uint64_t>(thread);
      for (const Stretch& stretch : stretches) {
        const Stretch s = share(stretch, t);
        sums[t * 8] ^= read_lines(memory.data() + s.offset * kLine, s.bytes);
      }
    });
    best = std::max(best, static_cast<double>(bytes) / (seconds() - start));
  }
  return best;
}

double read_files(ThreadPool& pool, const std::vector<std::string>& paths) {
  constexpr std::uint64_t kPiece = 1u << 20;
  struct Piece {
    int fd;
    std::uint64_t offset;
  };
  std::vector<Piece> pieces;
  for (const std::string& path : paths) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat st {};
    if (fd < 0 || fstat(fd, &st) != 0) {
      std::perror(path.c_str());
      std::exit(1);
    }
    for (std::uint64_t at = 0; at < static_cast<std::uint64_t>(st.st_size); at += kPiece)
      pieces.push_back({fd, at});
  }
  std::vector<Buffer> buffers;
  for (int i = 0; i < pool.threads(); ++i) buffers.emplace_back(kPiece);
  std::atomic<std::uint64_t> bytes{0};
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    bytes = 0;
    const double start = seconds();
    pool.parallel_for(pieces.size(), [&](int thread, std::size_t i) {
      const ssize_t n = pread(pieces[i].fd, buffers[static_cast<std::size_t>(thread)].data(),
                              kPiece, static_cast<off_t>(pieces[i].offset));
      bytes += static_cast<std::uint64_t>(std::max<ssize_t>(n, 0));
    });
    best = std::max(best, static_cast<double>(bytes) / (seconds() - start));
  }
  return best;
}

double touch_memory(ThreadPool& pool, std::uint64_t bytes) {
  Buffer memory = Buffer::in_huge_pages(bytes);
  const double start = seconds();
  pool.on_each_thread([&](int thread) {
    const auto t = static_cast<std::uint64_t>(thread);
    const auto threads = static_cast<std::uint64_t>(pool.threads());
    for (std::uint64_t at = bytes * t / threads; at < bytes * (t + 1) / threads; at += kPage)
      memory.data()[at] = std::byte{1};
  });
  return static_cast<double>(bytes) / (seconds() - start);
}

double measured(ThreadPool& pool, const std::string& mode, char** words, char** end) {
  if (mode == "memory") return read_memory(pool, std::atof(*words));
  if (mode == "touch") return touch_memory(pool, std::strtoull(*words, nullptr, 10));
  return read_files(pool, {words, end});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 3 ? argv[1] : "";
  if (mode != "memory" && mode != "files" && mode != "touch") {
    std::fprintf(stderr,
                 "usage: read_bench memory THREADS SECONDS | files THREADS FILE... | "
                 "touch THREADS BYTES\n");
    return 2;
  }
  ThreadPool pool(std::atoi(argv[2]));
  std::printf("%.0f\n", measured(pool, mode, argv + 3, argv + argc));
}
