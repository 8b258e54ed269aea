#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/vocabulary.h"
#include "runtime/job_queue.h"
#include "runtime/result.h"

namespace troupe {

/// What shards follow grammars with: the model's vocabulary, and grammars, compiled on threads of
/// its own while the prompt is computed, large ones apart; those used last are kept. Thread-safe.
class AnswerGrammars {
 public:
  using Grammar = Result<std::shared_ptr<const CompiledGrammar>>;
  using Words = Result<std::shared_ptr<const Vocabulary>>;

  /// Their compiling stands back behind steps: it may take seconds.
  static constexpr int kLargeNice = 10;
  /// Of those that are kept, with the masks that they have found out. Most take some 100 KB; those
  /// of 60 KB of schema up to 26 MB.
  static constexpr std::size_t kKeptBytesMax = 256u << 20;

  explicit AnswerGrammars(Words words, std::size_t kept_bytes_max = kKeptBytesMax);
  /// Waits for what is compiled.
  ~AnswerGrammars();
  AnswerGrammars(const AnswerGrammars&) = delete;

  /// Begins to compile it. Its own errors; kUnavailable: too many wait, ask again.
  std::shared_future<Grammar> begin(const std::string& text);
  /// An error if the checkpoint has none that could be read.
  const Words& vocabulary() const { return words_; }

 private:
  struct Entry {
    std::shared_future<Grammar> compiled;
    std::uint64_t used = 0;  ///< when, in calls
  };
  /// Forgets those that were used longest ago until there is room for one. Their answers keep them.
  void make_room();

  const Words words_;
  const std::size_t kept_bytes_max_;
  std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> kept_;  // guarded by mutex_
  std::uint64_t calls_ = 0;                         // guarded by mutex_
  JobQueue jobs_;
  JobQueue large_jobs_;
};

}  // namespace troupe
