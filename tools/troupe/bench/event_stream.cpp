#include "tools/troupe/bench/event_stream.h"

#include <algorithm>
#include <utility>

#include "tools/troupe/bench/limits.h"

namespace troupe::bench {

Status EventStream::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + data_.size() + end > kEventBytesMax)
      return resource_exhausted("An event of the answer has no end");
    line_.append(bytes.substr(0, end));
    if (end == bytes.size()) return {};
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (Status taken = on_line(); !taken.ok()) return taken;
  }
  return {};
}

Status EventStream::on_line() {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (!std::exchange(has_data_, false)) return {};
    return take_(std::exchange(data_, {}));
  }
  std::string_view value(line);
  if (!value.starts_with("data")) return {};
  value.remove_prefix(4);
  if (!value.empty() && value.front() != ':') return {};
  if (!value.empty()) value.remove_prefix(1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += value;
  return {};
}

}  // namespace troupe::bench
