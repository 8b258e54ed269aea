#pragma once

#include <string_view>

namespace troupe {

/// This thread is at work on that request (RequestName::id; empty: one without a name), which must
/// live as long: should the thread crash meanwhile, the process can say so (current()).
class InHand {
 public:
  explicit InHand(std::string_view request);
  ~InHand();
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

  /// Empty: none. In a handler of a signal that this thread has brought about as well.
  static std::string_view current();

 private:
  const std::string_view before_;
};

}  // namespace troupe
