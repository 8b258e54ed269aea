// Runs a fuzz target without libFuzzer: mutated seeds from a fixed start for some seconds. A child
// does the work, so that a crash, a report of a sanitizer or a hang leaves the input that did it.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

/// Longer inputs find little more and are slow.
constexpr std::size_t kInputBytesMax = 16u << 10;
/// One input that takes this long hangs, even with sanitizers on a busy machine.
constexpr unsigned kHangSeconds = 20;

struct Options {
  std::uint64_t seconds = 10;
  std::uint64_t seed = 1;
  std::string write_seeds;         ///< a folder to write the made seeds into, for libFuzzer
  std::vector<std::string> paths;  ///< seeds, or folders of them
};

bool parse_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--seconds" && has_value) {
      if (!parse_number(argv[++i], options.seconds)) return false;
    } else if (arg == "--seed" && has_value) {
      if (!parse_number(argv[++i], options.seed)) return false;
    } else if (arg == "--write-seeds" && has_value) {
      options.write_seeds = argv[++i];
    } else if (arg.starts_with("-")) {
      return false;
    } else {
      options.paths.emplace_back(arg);
    }
  }
  return true;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> read_seeds(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const fs::path path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // the same run on every machine
  std::vector<std::string> seeds = troupe::fuzz::made_seeds();
  for (const fs::path& file : files) seeds.push_back(read_file(file));
  if (seeds.empty()) seeds.emplace_back();
  return seeds;
}

/// Runs one input, which lies in `kept` until the next one.
void run_input(int kept, const std::string& input) {
  if (pwrite(kept, input.data(), input.size(), 0) < 0 ||
      ftruncate(kept, static_cast<off_t>(input.size())) != 0)
    std::perror("fuzz: cannot keep the input");
  alarm(kHangSeconds);
  // A copy of its own size: a read behind the end is seen.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

int run_all(int kept, const Options& options, const std::vector<std::string>& seeds) {
  using Clock = std::chrono::steady_clock;
  std::mt19937_64 random(options.seed);
  std::uint64_t executions = 0;
  for (const std::string& seed : seeds) {
    run_input(kept, seed);
    ++executions;
  }
  const auto end = Clock::now() + std::chrono::seconds(options.seconds);
  while (Clock::now() < end) {
    run_input(kept, troupe::fuzz::mutate(seeds, kInputBytesMax, random));
    ++executions;
  }
  std::printf("%llu executions from %zu seeds, no crash\n",
              static_cast<unsigned long long>(executions), seeds.size());
  return 0;
}

/// Runs everything in a child and tells how it ended.
int watch(const fs::path& kept_path, const Options& options,
          const std::vector<std::string>& seeds) {
  const int kept = open(kept_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (kept < 0) {
    std::perror(kept_path.c_str());
    return 1;
  }
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 1;
  }
  if (child == 0) {
    const int status = run_all(kept, options, seeds);
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(kept);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    fs::remove(kept_path);
    return 0;
  }
  const bool signaled = WIFSIGNALED(status);
  std::printf("FAILED: %s with seed %llu; the input is kept in %s, run it again with that path\n",
              !signaled                         ? "a sanitizer stopped it"
              : WTERMSIG(status) == SIGALRM ? "it hangs"
                                            : strsignal(WTERMSIG(status)),
              static_cast<unsigned long long>(options.seed), kept_path.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse_options(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s [--seconds N] [--seed S] [--write-seeds FOLDER] [SEED|FOLDER]...\n"
                 "With --seconds 0 it runs only the seeds, such as an input that failed.\n",
                 argv[0]);
    return 2;
  }
  const fs::path program = argv[0];
  if (!options.write_seeds.empty()) {
    int number = 0;
    for (const std::string& seed : troupe::fuzz::made_seeds())
      std::ofstream(fs::path(options.write_seeds) / ("made-" + std::to_string(number++)),
                    std::ios::binary)
          << seed;
    return 0;
  }
  const std::string kept = program.filename().string() + ".input." + std::to_string(getpid());
  return watch(fs::absolute(kept), options, read_seeds(options.paths));
}
