#include "model/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include "model/tokenizer/pattern_syntax.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

/// Patterns are foreign text: bounds on their size and on what a match may cost.
constexpr std::size_t kPatternBytesMax = 64u << 10;
constexpr std::uint32_t kMatchStepsPerByte = 256;
constexpr std::uint32_t kMatchStepsMin = 10'000'000;
constexpr std::size_t kJitStackBytesMax = 64u << 20;
constexpr std::uint32_t kHeapKibMax = 1u << 20;

std::uint64_t steps_for(std::string_view text) {
  return std::uint64_t{text.size()} * kMatchStepsPerByte + kMatchStepsMin;
}

Error gave_up(std::string_view text, const std::string& why) {
  return resource_exhausted("a pattern of the tokenizer gave up on a text of " +
                            std::to_string(text.size()) + " bytes (" + why + ")");
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  if (pcre2_get_error_message(code, text.data(), text.size()) < 0 && text[0] == 0) return "unknown";
  return reinterpret_cast<const char*>(text.data());
}

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};

}  // namespace

struct Pattern::Code {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
};

Result<Pattern> Pattern::compile(std::string_view onig_syntax) {
  if (onig_syntax.size() > kPatternBytesMax) {
    return invalid_argument("the pattern is longer than " + std::to_string(kPatternBytesMax) +
                            " bytes");
  }
  if (!utf8::valid(onig_syntax)) return invalid_argument("the pattern is not UTF-8");
  if (const std::optional<ScanPattern> simple = parse_scan_pattern(onig_syntax)) {
    if (std::optional<Scanner> scanner = Scanner::compile(*simple)) {
      Pattern result;
      result.scanner_ = std::make_shared<const Scanner>(std::move(*scanner));
      return result;
    }
  }
  Result<std::string> rewritten = to_pcre2_syntax(onig_syntax);
  if (!rewritten) return rewritten.error();
  return compile_pcre2(*rewritten);
}

Result<Pattern> Pattern::compile_pcre2(const std::string& pattern) {
  std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  if (!context) return resource_exhausted("no memory to compile a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 context.get()));
  if (!code->code) {
    return invalid_argument("the pattern does not compile (" + pcre2_message(error) + ")");
  }
  // Without the just-in-time compiler matching is slower, and the same.
  (void)pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  Pattern result;
  result.code_ = std::move(code);
  return result;
}

struct Matcher::State {
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack;
};

Matcher::Matcher() : state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  if (state_->context) pcre2_set_heap_limit(state_->context.get(), kHeapKibMax);
}

Matcher::~Matcher() = default;

Result<std::optional<TextRange>> Matcher::find(const Pattern& pattern, std::string_view text,
                                               std::size_t start) {
  if (!state_->data || !state_->context) return resource_exhausted("no memory to match a pattern");
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(pattern.code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                       text.size(), start, PCRE2_NO_UTF_CHECK | options, state_->data.get(),
                       state_->context.get());
  };
  int count = match(0);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT && !state_->stack) {
    state_->stack.reset(pcre2_jit_stack_create(64u << 10, kJitStackBytesMax, nullptr));
    if (state_->stack) {
      pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
      count = match(0);
    }
  }
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return std::optional<TextRange>();
  if (count < 0) return gave_up(text, pcre2_message(count));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state_->data.get());
  return std::optional<TextRange>({range[0], range[1]});
}

Status Matcher::find_all_by_scanner(const Scanner& scanner, std::string_view text,
                                    std::vector<TextRange>& matches) const {
  std::uint64_t steps = steps_for(text);
  std::optional<Scanner::Match> match;
  for (std::size_t position = 0;; position = match->end) {
    if (!scanner.find(text, position, steps, match)) return gave_up(text, "too many steps");
    if (!match) return {};
    matches.push_back({match->begin, match->end});
  }
}

Status Matcher::find_all(const Pattern& pattern, std::string_view text,
                         std::vector<TextRange>& matches) {
  if (pattern.scanner_) return find_all_by_scanner(*pattern.scanner_, text, matches);
  if (state_->context) {
    const std::uint64_t steps = std::min<std::uint64_t>(steps_for(text), UINT32_MAX);
    pcre2_set_match_limit(state_->context.get(), static_cast<std::uint32_t>(steps));
  }
  std::size_t position = 0;
  std::optional<std::size_t> last_end;
  while (position <= text.size()) {
    Result<std::optional<TextRange>> found = find(pattern, text, position);
    if (!found) return found.error();
    if (!*found) return {};
    const TextRange range = **found;
    if (range.begin == range.end && last_end == range.end) {
      if (position == text.size()) return {};
      (void)utf8::decode(text, position);
      continue;
    }
    matches.push_back(range);
    position = range.end;
    last_end = range.end;
  }
  return {};
}

}  // namespace troupe
