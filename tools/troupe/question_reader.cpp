#include "tools/troupe/question_reader.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "tools/troupe/line_editor.h"

namespace troupe::cli {

int take_signal(int signals) {
  signalfd_siginfo info{};
  return read(signals, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

QuestionReader::QuestionReader(int signals, std::size_t bytes_max, bool prompts)
    : signals_(signals),
      bytes_max_(bytes_max),
      prompts_(prompts),
      editor_(prompts ? LineEditor::open(signals) : nullptr) {}

QuestionReader::~QuestionReader() = default;

QuestionReader::News QuestionReader::next(const std::string& prompt, std::string& line) {
  if (editor_) return editor_->next(prompt, line);
  if (prompts_) std::fputs(prompt.c_str(), stdout);
  std::fflush(stdout);
  return next_read(line);
}

QuestionReader::News QuestionReader::next_read(std::string& line) {
  while (true) {
    if (take_line(line)) return News::kLine;
    if (ended_) return News::kEnd;
    if (read_.size() > bytes_max_) return News::kTooLong;
    std::array<pollfd, 2> sources{{{STDIN_FILENO, POLLIN, 0}, {signals_, POLLIN, 0}}};
    if (poll(sources.data(), sources.size(), -1) < 0) continue;
    if (const int signal = sources[1].revents != 0 ? take_signal(signals_) : 0; signal != 0) {
      // What a terminal held of a line it has thrown away itself.
      return signal == SIGINT ? News::kInterrupted : News::kTerminated;
    }
    if (sources[0].revents == 0) continue;
    std::array<char, 64 << 10> bytes;
    const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count > 0) read_.append(bytes.data(), static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) ended_ = true;
  }
}

bool QuestionReader::take_line(std::string& line) {
  const std::size_t end = read_.find('\n');
  if (end == std::string::npos && (!ended_ || read_.empty())) return false;
  line = read_.substr(0, end);
  read_.erase(0, end == std::string::npos ? end : end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace troupe::cli
