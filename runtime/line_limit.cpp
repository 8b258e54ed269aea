#include "runtime/line_limit.h"

#include "runtime/log.h"

namespace troupe {

std::string LineLimit::line_of(const std::string& line, TimePoint now) {
  std::string before;
  if (written_ == 0 || now - since_ >= std::chrono::minutes(1)) {
    if (left_out_ > 0) before = "… and " + std::to_string(left_out_) + " more like this before. ";
    since_ = now;
    written_ = left_out_ = 0;
  }
  if (written_ == kLinesMax) {
    ++left_out_;
    return {};
  }
  ++written_;
  return before + line;
}

void LineLimit::warn(const std::string& line, TimePoint now) {
  if (const std::string text = line_of(line, now); !text.empty()) logger().warn("{}", text);
}

}  // namespace troupe
