#include <cstddef>
#include <cstdint>
#include <string_view>

#include "actors/control/enrolment_text.h"
#include "actors/control/join_token.h"
#include "actors/control/pem.h"
#include "actors/control/token_book.h"

/// What a stranger says to the head, what a head says to a worker, and the token and the file
/// between them: what is read must be written so that it reads the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto request = control::parse_enrolment_request(text); request.ok()) {
    const auto again = control::parse_enrolment_request(control::format_enrolment(*request));
    if (!again.ok() || again->secret != request->secret) __builtin_trap();
    (void)control::read_request(request->signing_request);
  }
  if (const auto asked = control::parse_renewal(text); asked.ok())
    if (!control::parse_renewal(control::format_renewal(*asked)).ok()) __builtin_trap();
  if (const auto reply = control::parse_enrolment_reply(text); reply.ok())
    if (!control::parse_enrolment_reply(control::format_enrolment(*reply)).ok()) __builtin_trap();
  if (const auto token = parse_join_token(text); token.ok())
    if (format_join_token(*token) != text) __builtin_trap();
  if (const auto tokens = parse_tokens(text); tokens.ok())
    if (!parse_tokens(format_tokens(*tokens)).ok()) __builtin_trap();
  return 0;
}
