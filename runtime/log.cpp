#include "runtime/log.h"

#include <limits.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string_view>

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

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(bool colour) : colour_(colour) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
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
    line += '\n';
    std::string_view left = line;
    while (!left.empty()) {
      const ssize_t written = ::write(STDERR_FILENO, left.data(), left.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;  // nobody can be told
      left.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void flush_() override {}

  static constexpr std::size_t kLineBytesMax = PIPE_BUF - 32;  // and the colour
  const bool colour_;
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
