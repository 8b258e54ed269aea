#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "model/jinja/template.h"
#include "model/tokenizer/utf8.h"

namespace {

using troupe::jinja::Dict;
using troupe::jinja::Value;
using troupe::jinja::Values;

/// Of the processor, so that a busy machine does not count. A budget is 0.1 s (context.h); the rest
/// is for sanitizers.
constexpr double kSecondsMax = 5;

double processor_s() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Dict variables() {
  Dict message;
  message.set("role", "user");
  message.set("content", "x \xc3\xb6 <think>y</think>");
  Dict all;
  all.set("messages", Values{Value(message), Value(std::move(message))});
  all.set("n", 3);
  return all;
}

}  // namespace

/// The bytes are a template. Whatever it says, it is read and rendered in the time that its budget
/// stands for, with text that is UTF-8 or with an error that says something.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const double begun = processor_s();
  const auto parsed = troupe::jinja::Template::parse({reinterpret_cast<const char*>(data), size});
  if (parsed.ok()) {
    const auto text = parsed->render(variables(), 0);
    if (text.ok() ? !troupe::utf8::valid(*text) : text.error().message.empty()) std::abort();
  }
  if (const double took = processor_s() - begun; took > kSecondsMax) {
    std::fprintf(stderr, "it took %.1f s\n", took);
    std::abort();
  }
  return 0;
}
