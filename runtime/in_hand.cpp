#include "runtime/in_hand.h"

#include <atomic>
#include <utility>

namespace troupe {
namespace {

thread_local std::string_view in_hand;

/// Whatever follows may crash: it is written by then.
std::string_view take(std::string_view request) {
  const std::string_view before = std::exchange(in_hand, request);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return before;
}

}  // namespace

InHand::InHand(std::string_view request) : before_(take(request)) {}
InHand::~InHand() { static_cast<void>(take(before_)); }
std::string_view InHand::current() { return in_hand; }

}  // namespace troupe
