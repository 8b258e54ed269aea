#include "runtime/log.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/counted.h"

namespace troupe {
namespace {

/// What the terminal shows the level in.
std::string_view colour_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::info:
      return "\033[32m";
    case spdlog::level::warn:
      return "\033[33;1m";
    case spdlog::level::err:
    case spdlog::level::critical:
      return "\033[31;1m";
    default:
      return "\033[36m";
  }
}

/// A terminal may have room for a part of a line only, and a write waits to put the rest: a second
/// way to it does not. Negative: standard error is no terminal, or cannot be opened.
int open_terminal() {
  if (!isatty(STDERR_FILENO)) return -1;
  return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/// How much of it there was room for. All, if nobody can be told.
std::size_t write_all(int file, std::string_view line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(file, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return done;
    if (written <= 0) return line.size();
    done += static_cast<std::size_t>(written);
  }
  return done;
}

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(bool colour) : colour_(colour) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (left_out_ > 0) {
      const std::string text = counted(left_out_, "line") + (left_out_ == 1 ? " is" : " are") +
                               " left out here: nobody read the log";
      const spdlog::details::log_msg notice(message.logger_name, spdlog::level::warn, text);
      if (put((cut_ ? "\n" : "") + line_of(notice), 0)) left_out_ = 0;
    }
    // An error may be the last that there is to say.
    const int patience_ms = message.level >= spdlog::level::err ? kErrorPatienceMs : 0;
    if (left_out_ > 0 || !put(line_of(message), patience_ms)) ++left_out_;
  }
  void flush_() override {}

  std::string line_of(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t record;
    formatter_->format(message, record);
    std::string line(record.data(), record.size());
    // One record a line, and no more than a pipe takes in one piece.
    if (!line.empty()) line.pop_back();
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r' || c == '\033'; },
        ' ');
    if (line.size() > kLineBytesMax) line.replace(kLineBytesMax - 3, line.npos, "...");
    if (colour_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\033[m");
      line.insert(message.color_range_start, colour_of(message.level));
    }
    return line + '\n';
  }

  /// False: there is no room for it, or for a part only.
  bool put(std::string_view line, int patience_ms) {
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    int ready;
    while ((ready = poll(&room, 1, patience_ms)) < 0 && errno == EINTR) {
    }
    if (ready == 0) return false;
    const int terminal = open_terminal();
    const std::size_t written = write_all(terminal < 0 ? STDERR_FILENO : terminal, line);
    if (terminal >= 0) close(terminal);
    if (written > 0) cut_ = written < line.size();
    return written == line.size();
  }

  static constexpr std::size_t kLineBytesMax = PIPE_BUF - 32;  // and the colour
  static constexpr int kErrorPatienceMs = 100;
  const bool colour_;
  std::size_t left_out_ = 0;  ///< lines, since one found room
  bool cut_ = false;          ///< the last that was written
};

spdlog::sink_ptr make_sink(const LogOptions& options) {
  std::string pattern = "%H:%M:%S.%e %^%l%$ ";
  for (const char c : options.who) pattern += c == '%' ? "%%" : std::string(1, c);
  if (!options.who.empty()) pattern += ": ";
  auto sink = std::make_shared<StderrSink>(options.colour);
  sink->set_pattern(pattern + "%v");
  return sink;
}

}  // namespace

spdlog::logger& logger() {
  // Never destroyed: threads may log while the process ends.
  static auto& troupe = *new spdlog::logger("troupe", make_sink({}));
  return troupe;
}

Status init_log(const LogOptions& options) {
  const auto& level = options.level;
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    return invalid_argument("'" + level +
                            "' is no --log-level; use trace, debug, info, warn, error or off.");
  logger().sinks() = {make_sink(options)};
  logger().set_level(parsed);
  return {};
}

}  // namespace troupe
