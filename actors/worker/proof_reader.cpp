#include "actors/worker/proof_reader.h"

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/node_agent/messages.h"
#include "model/tensor_proofs.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

struct Question {
  ProofReader::Open open;
  std::vector<std::string> tensors;
};

}  // namespace

/// Those that wait for an answer; jobs that hang hold them as well.
struct ProofReader::Questions {
  explicit Questions(std::shared_ptr<SourceVoice> v) : voice(std::move(v)) {}

  /// False: it is not taken.
  bool add(Question& question);
  std::optional<Question> next();
  void put_back(Question question, std::size_t answered);
  void answer(Question question, const std::atomic<bool>& cancelled);
  void refuse(Question question, std::string why) {
    voice->tell(ProofsRead{
        TensorProofs{true, {}, not_found(std::move(why)), std::move(question.tensors)}});
  }

  const std::shared_ptr<SourceVoice> voice;
  std::mutex mutex;
  std::deque<Question> waiting;  // guarded by mutex; at most kProvesMax
};

bool ProofReader::Questions::add(Question& question) {
  std::lock_guard lock(mutex);
  if (waiting.size() >= limits::kProvesMax) return false;
  waiting.push_back(std::move(question));
  return true;
}

std::optional<Question> ProofReader::Questions::next() {
  std::lock_guard lock(mutex);
  if (waiting.empty()) return std::nullopt;
  Question question = std::move(waiting.front());
  waiting.pop_front();
  return question;
}

void ProofReader::Questions::put_back(Question question, std::size_t answered) {
  question.tensors.erase(question.tensors.begin(),
                         question.tensors.begin() + static_cast<std::ptrdiff_t>(answered));
  std::lock_guard lock(mutex);
  waiting.push_front(std::move(question));
}

void ProofReader::Questions::answer(Question question, const std::atomic<bool>& cancelled) {
  const auto opened = question.open();
  if (!opened.ok()) return refuse(std::move(question), opened.error().message);
  const auto begin = [&] {
    TensorProofs begun{true, {}, {}};
    begun.reopened = opened->reopened;
    return begun;
  };
  TensorProofs answer = begin();
  for (std::size_t i = 0; i < question.tensors.size() && !answer.error; ++i) {
    const Status read =
        read_proofs(*opened->checkpoint, {&question.tensors[i], 1}, answer.tensors, &cancelled);
    if (cancelled) {
      put_back(std::move(question), i + (read.ok() ? 1 : 0) - answer.tensors.size());
      return;
    }
    if (!read.ok()) {
      answer.error = read.error();
      answer.unread.assign(question.tensors.begin() + static_cast<std::ptrdiff_t>(i),
                           question.tensors.end());
    }
    if (answer.tensors.size() >= limits::kProofsPerMessage)
      voice->tell(ProofsRead{std::exchange(answer, begin())});
  }
  if (!answer.tensors.empty() || answer.error) voice->tell(ProofsRead{std::move(answer)});
}

ProofReader::ProofReader(std::shared_ptr<SourceVoice> voice)
    : questions_(std::make_shared<Questions>(std::move(voice))) {}

void ProofReader::prove(Open open, std::vector<std::string> tensors) {
  const auto questions = questions_;
  Question question{std::move(open), std::move(tensors)};
  if (!questions->add(question))
    return questions->refuse(std::move(question), "Too many questions for proofs wait here.");
  // A job that runs is called off, and a newer one goes on where it was: so a hang is found.
  loader_.run(
      [questions](const std::atomic<bool>& cancelled) {
        while (!cancelled) {
          auto question = questions->next();
          if (!question) return;
          questions->answer(std::move(*question), cancelled);
        }
      },
      [questions] {
        while (auto question = questions->next())
          questions->refuse(std::move(*question),
                            "Reading the checkpoint hangs; look at this machine's storage.");
      });
}

void ProofReader::cancel() {
  loader_.cancel();
  while (questions_->next()) {
  }
}

}  // namespace troupe
