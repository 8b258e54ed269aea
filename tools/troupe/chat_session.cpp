#include "tools/troupe/chat_session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>

#include "runtime/clock.h"
#include "runtime/limits.h"
#include "tools/troupe/console/canvas.h"

namespace troupe::cli {
namespace {

/// So long a head that went away is looked for, and so often.
constexpr Duration kSeekAgain = std::chrono::seconds(30);
constexpr int kSeekPauseMs = 200;

constexpr const char* kChatHelp =
    "/reset begins a new conversation, /quit ends this one.\n"
    "/system TEXT is what the model is told before it, from now on; alone: nothing.\n"
    "Ctrl-C ends an answer; twice, or Ctrl-D, the conversation.\n"
    "A line of \"\"\" begins and ends a question of several lines.\n"
    "A blank before a line that begins with / makes it a question.\n"
    "Up and Ctrl-R find earlier lines; ~/.editrc says which keys do what (man editrc).";

bool escapes_wanted() {
  const char* no = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return !(no && *no) && kind && std::string_view(kind) != "dumb";
}

chat::Thoughts thoughts_wanted() {
  if (!isatty(STDOUT_FILENO)) return chat::Thoughts::kHidden;
  return escapes_wanted() ? chat::Thoughts::kDim : chat::Thoughts::kMarked;
}

int open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&set, signal);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

/// Between the cluster's threads and ours. An answer's length is its bound.
struct ChatSession::Inbox {
  void add(const GenerationEvent& event) {
    {
      std::lock_guard lock(mutex);
      events.push_back(event);
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(news, &one, sizeof one);
  }
  std::vector<GenerationEvent> take() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto emptied = read(news, &count, sizeof count);
    std::lock_guard lock(mutex);
    return std::exchange(events, {});
  }
  ~Inbox() { close(news); }

  const int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::mutex mutex;
  std::vector<GenerationEvent> events;  // guarded by mutex
};

/// One that is coming.
struct ChatSession::Answer {
  Answer(chat::Thoughts thoughts, const ReasoningStart& reasoning)
      : parser(make_answer_parser({reasoning})), view(thoughts) {}
  std::string take(AnswerDelta delta) {
    thought += delta.reasoning;
    content += delta.content;
    return said_of(view.add(delta));
  }
  /// What of `text` has not come before: an answer that is asked for again begins with what is
  /// there. None, if it is another one.
  std::optional<std::string> fresh(const std::string& text) {
    const std::size_t known = std::min(text.size(), raw.size() - again);
    if (raw.compare(again, known, text, 0, known) != 0) return std::nullopt;
    std::string rest = text.substr(known);
    raw += rest;
    again += text.size();
    return rest;
  }
  std::string said_of(std::string text) {
    said = said || !text.empty();
    return text;
  }
  std::unique_ptr<AnswerParser> parser;  // Null: all is content.
  chat::AnswerView view;
  std::string thought, content;
  std::string raw;        // As it came, thoughts and all.
  std::size_t again = 0;  // So much of it has come from the head that answers now.
  std::optional<TimePoint> give_up_at = {};  // While its head is gone.
  FinishReason finish = FinishReason::kNone;
  bool asked = false;  // A head has it.
  bool stopped = false;
  bool said = false;  // Something was printed: its line wants an end.
  std::optional<Error> error;
};

ChatSession::ChatSession(Options options, ChatSource source)
    : options_(std::move(options)),
      talks_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)),
      thoughts_(thoughts_wanted()),
      source_(std::move(source)),
      signals_(open_signals()),
      reader_(signals_, limits::kHttpBodyBytesMax, talks_),
      system_(options_.system) {}

ChatSession::~ChatSession() { close(signals_); }

void ChatSession::print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  // Nobody reads any more: there is nobody to tell.
  if (std::fflush(stdout) != 0 && !exit_) exit_ = kFailed;
}

/// For somebody at a terminal only.
void ChatSession::note(const std::string& text) {
  if (!talks_) return;
  const bool dim = thoughts_ == chat::Thoughts::kDim;
  print((dim ? "\x1b[2m" : "") + text + (dim ? "\x1b[0m\n" : "\n"));
}

void ChatSession::failed(const Error& error) {
  fail(error);
  if (!talks_) exit_ = error.code == ErrorCode::kInvalidArgument ? kUsage : kFailed;
}

int ChatSession::run() {
  note("Talking to " + console::plain_text(source_->model) + ". /help tells more, Ctrl-D ends.");
  while (!exit_) {
    std::string line;
    switch (reader_.next(longer_ ? ". " : "> ", line)) {
      case QuestionReader::News::kLine:
        interrupted_ = false;
        on_line(line);
        break;
      case QuestionReader::News::kInterrupted:
        on_interrupt();
        break;
      case QuestionReader::News::kTooLong:
        failed(invalid_argument("A question has more than " +
                                std::to_string(limits::kHttpBodyBytesMax) + " bytes."));
        exit_ = kUsage;
        break;
      case QuestionReader::News::kEnd:
        if (talks_) print("\n");
        exit_ = exit_.value_or(kDone);
        break;
      case QuestionReader::News::kTerminated:
        exit_ = kDone;
    }
  }
  return *exit_;
}

void ChatSession::on_interrupt() {
  print(talks_ ? "\n" : "");
  longer_.reset();
  if (interrupted_ || !talks_)
    exit_ = kDone;
  else
    note("Ctrl-C once more, or Ctrl-D, ends the conversation.");
  interrupted_ = true;
}

void ChatSession::on_line(const std::string& line) {
  constexpr std::string_view kFence = "\"\"\"";
  if (longer_) {
    if (line != kFence) {
      *longer_ += line + "\n";
      return;
    }
    std::string question = *std::exchange(longer_, std::nullopt);
    if (question.empty()) return;
    question.pop_back();  // the end of its last line
    ask(question);
  } else if (talks_ && line == kFence) {
    longer_ = "";
  } else if (line.starts_with('/')) {
    on_command(line);
  } else if (line.find_first_not_of(" \t") != std::string::npos) {
    ask(line);
  }
}

void ChatSession::on_command(const std::string& line) {
  const std::string whole = line.substr(0, line.find_last_not_of(" \t") + 1);
  const std::string word = whole.substr(0, whole.find_first_of(" \t"));
  const auto text_at = whole.find_first_not_of(" \t", word.size());
  const std::string text = text_at == std::string::npos ? "" : whole.substr(text_at);
  const bool alone = text.empty();
  if (word == "/system") {
    system_ = text;
    note(alone ? "The model is told nothing before the conversation."
               : "The model is told that from the next question on.");
  } else if (word == "/quit" && alone) {
    exit_ = kDone;
  } else if (word == "/reset" && alone) {
    history_.clear();
    note("A new conversation.");
  } else if (word == "/help" && alone) {
    print(std::string(kChatHelp) + "\n");
  } else {
    failed(invalid_argument("There is no " + whole + "; there are /reset, /system TEXT, /help " +
                            "and /quit. A blank before it asks it."));
  }
}

/// The cluster, looked for again if it went away.
Status ChatSession::open_source() {
  if (source_) return {};
  auto opened = options_.open();
  if (!opened.ok()) return opened.error();
  source_ = std::move(*opened);
  return {};
}

void ChatSession::ask(const std::string& question) {
  if (const Status opened = open_source(); !opened.ok()) return failed(opened.error());
  GenerationRequest request = options_.request;
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.insert(messages.end(), history_.begin(), history_.end());
  messages.push_back({"user", question});
  request.prompt = std::move(messages);
  // With the same seed the same answer comes, whoever gives it.
  if (!request.seed) request.seed = std::random_device()();
  Answer answer(thoughts_, source_->reasoning(request));
  answer_to(request, answer);
  while (is_lost(answer) && seek_again(answer)) answer_to(request, answer);
  keep(answer, question);
}

void ChatSession::answer_to(const GenerationRequest& request, Answer& answer) {
  answer.again = 0;
  answer.error.reset();
  const auto inbox = std::make_shared<Inbox>();
  const auto number = source_->cluster->stream(
      request, [inbox](const GenerationEvent& event) { inbox->add(event); });
  if (!number.ok()) {
    answer.error = number.error();
    return;
  }
  answer.asked = true;
  read_answer(answer, inbox, *number);
}

/// Whether it broke off because its head went away.
bool ChatSession::is_lost(const Answer& answer) const {
  if (!answer.error || !answer.asked || !source_->remote || answer.stopped || exit_) return false;
  if (!passing(answer.error->code)) return false;
  return answer.give_up_at || !source_->cluster->status_json().ok();
}

/// Looks for the head, or whoever is in its place. False: it did not come back in time, or is not
/// wanted any more.
bool ChatSession::seek_again(Answer& answer) {
  if (!answer.give_up_at) {
    answer.give_up_at = now() + kSeekAgain;
    if (answer.said && talks_) print("\n");
    note("The head is gone; it is looked for. Ctrl-C ends that.");
  }
  while (now() < *answer.give_up_at) {
    pollfd signals{signals_, POLLIN, 0};
    if (poll(&signals, 1, kSeekPauseMs) > 0)
      if (const int signal = take_signal(signals_); signal != 0) {
        stop(answer, signal);
        return false;
      }
    auto opened = options_.open();
    if (!opened.ok()) continue;
    source_ = std::move(*opened);
    return true;
  }
  return false;
}

void ChatSession::stop(Answer& answer, int signal) {
  if (signal == SIGTERM || !talks_) exit_ = kDone;
  answer.error.reset();
  answer.stopped = interrupted_ = true;
}

/// Until it ends, breaks off or is not wanted any more.
void ChatSession::read_answer(Answer& answer, const std::shared_ptr<Inbox>& inbox,
                              std::uint64_t number) {
  constexpr auto kPatience =
      std::chrono::duration_cast<std::chrono::milliseconds>(limits::kRouterAnswerDeadline);
  while (true) {
    std::array<pollfd, 2> sources{{{inbox->news, POLLIN, 0}, {signals_, POLLIN, 0}}};
    const int ready = poll(sources.data(), sources.size(), static_cast<int>(kPatience.count()));
    if (const int signal = sources[1].revents != 0 ? take_signal(signals_) : 0; signal != 0) {
      source_->cluster->cancel(number);
      return stop(answer, signal);
    }
    // A head that hangs says nothing: a long silence is broken by asking for its status.
    if (ready == 0) {
      if (const auto alive = source_->cluster->status_json(); !alive.ok()) {
        answer.error = alive.error();
        return;
      }
    }
    if (take_events(answer, *inbox) || exit_) return;
  }
}

/// True with the last.
bool ChatSession::take_events(Answer& answer, Inbox& inbox) {
  std::string out;
  bool ended = false;
  for (const auto& event : inbox.take()) {
    if (event.error) {
      answer.error = event.error;
      ended = true;
      break;
    }
    const auto text = answer.fresh(event.text);
    if (!text) {
      answer.error = refused("The head that came back gives another answer.");
      ended = true;
      break;
    }
    if (!text->empty()) answer.give_up_at.reset();
    out += answer.take(answer.parser ? answer.parser->feed(*text) : AnswerDelta{{}, *text, {}});
    if (event.finish != FinishReason::kNone) answer.finish = event.finish;
    ended = ended || event.request_done;
  }
  print(out);
  return ended;
}

/// Prints what is left to say of an answer, and keeps the turn if there was one.
void ChatSession::keep(Answer& answer, const std::string& question) {
  std::string rest;
  if (answer.parser) rest = answer.take(answer.parser->finish());
  rest += answer.said_of(answer.view.finish());
  print(answer.said || !answer.error ? rest + "\n" : rest);
  if (answer.error) {
    // What is wrong with a question is no fault of the connection.
    const bool refused = answer.error->code == ErrorCode::kInvalidArgument;
    if (source_ && source_->remote && !refused) source_.reset();
    failed(*answer.error);
    if (!refused) note("The conversation is kept, without that question: ask it again.");
    return;
  }
  if (answer.content.find_first_not_of(" \t\n") == std::string::npos) {
    if (!answer.stopped) note("The model gave no answer; this turn is forgotten.");
    return;
  }
  if (answer.stopped) note("Stopped; the conversation goes on with what there is.");
  if (answer.finish == FinishReason::kLength)
    note("Cut off: the answer has as many tokens as it may.");
  history_.push_back({"user", question});
  history_.push_back({"assistant", std::move(answer.content)});
  history_.back().reasoning_content = std::move(answer.thought);
}

}  // namespace troupe::cli
