#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/generation.h"
#include "tools/troupe/chat/answer_view.h"
#include "tools/troupe/chat_source.h"
#include "tools/troupe/failure.h"
#include "tools/troupe/question_reader.h"

namespace troupe::cli {

/// A conversation: questions from the standard input, answers to the standard output as they come.
///
///     question ─► history ─► cluster ─► events (their thread) ─► inbox ─► view ─► terminal
///
/// Ctrl-C ends the answer that is coming; at the prompt the second one in a row ends the
/// conversation, as the end of the input does. A head that goes away while it answers is looked
/// for, and asked the same again: what was printed does not come twice. One that stays away is an
/// error of the question that it was asked; the next one looks for it again.
class ChatSession {
 public:
  struct Options {
    GenerationRequest request;  ///< but its prompt
    std::string system;         ///< until /system gives another; empty: no system message
    std::function<Result<ChatSource>()> open;
  };
  /// `source` was opened already. Signals are blocked (main() does that).
  ChatSession(Options options, ChatSource source);
  ~ChatSession();

  /// Until it is over; the exit code.
  int run();

 private:
  struct Inbox;
  struct Answer;

  void on_line(const std::string& line);
  void on_command(const std::string& line);
  void on_interrupt();
  void ask(const std::string& question);
  Status open_source();
  void answer_to(const GenerationRequest& request, Answer& answer);
  bool is_lost(const Answer& answer) const;
  bool seek_again(Answer& answer);
  void stop(Answer& answer, int signal);
  void read_answer(Answer& answer, const std::shared_ptr<Inbox>& inbox, std::uint64_t number);
  bool take_events(Answer& answer, Inbox& inbox);
  void keep(Answer& answer, const std::string& question);
  void failed(const Error& error);
  void print(const std::string& text);
  void note(const std::string& text);

  const Options options_;
  const bool talks_;  // With somebody at a terminal.
  const chat::Thoughts thoughts_;
  std::optional<ChatSource> source_;
  const int signals_;
  QuestionReader reader_;
  std::string system_;  // Before every question; empty: no system message.
  std::vector<ChatMessage> history_;
  std::optional<std::string> longer_;  // A question of several lines, so far.
  bool interrupted_ = false;           // Ctrl-C was the last that happened.
  std::optional<int> exit_;
};

}  // namespace troupe::cli
