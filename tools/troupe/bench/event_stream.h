#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe::bench {

/// Reads server-sent events (WHATWG HTML, section 9.2.6) in whatever pieces they come, and hands
/// on the data of each. Lines may end with CR, LF or both; comments and other fields are passed
/// over.
class EventStream {
 public:
  explicit EventStream(std::function<Status(std::string_view data)> take)
      : take_(std::move(take)) {}
  /// kResourceExhausted: an event has no end; else what `take` said. Nothing may follow an error.
  Status feed(std::string_view bytes);

 private:
  Status on_line();

  std::function<Status(std::string_view)> take_;
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false;
};

}  // namespace troupe::bench
