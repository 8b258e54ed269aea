#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/worker/loader.h"
#include "actors/worker/source_voice.h"
#include "model/checkpoint.h"

namespace troupe {

/// Answers the head's questions what tensors are in the storage, in their order. A read that hangs
/// costs a thread and its own answer.
class ProofReader {
 public:
  explicit ProofReader(std::shared_ptr<SourceVoice> voice);

  /// What is to be read, as it is by then.
  struct Opened {
    std::shared_ptr<const Checkpoint> checkpoint;
    bool reopened = false;  ///< its files have changed since it was opened first
  };
  using Open = std::function<Result<Opened>()>;
  /// ProofsRead follows, in portions; the last of them may have an error.
  void prove(Open open, std::vector<std::string> tensors);
  void cancel();

 private:
  struct Questions;
  const std::shared_ptr<Questions> questions_;
  Loader loader_;
};

}  // namespace troupe
