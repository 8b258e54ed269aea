#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"
#include "runtime/result.h"

namespace troupe::jinja {

/// What a template may cost, whoever wrote it.
inline constexpr std::size_t kTemplateBytesMax = 1u << 20;
/// Of a name: it is compared with others wherever it is looked for.
inline constexpr std::size_t kNameBytesMax = 256;
/// Blocks and brackets within each other, and the operands of a chain.
inline constexpr int kSyntaxHeightMax = 200;
/// Statements and evaluations within each other, macros included: what the stack holds.
inline constexpr int kDepthMax = 600;
inline constexpr int kMacroDepthMax = 100;
/// Lists and dictionaries within each other.
inline constexpr int kValueHeightMax = 100;
/// As Jinja's sandbox has it.
inline constexpr std::int64_t kRangeMax = 100'000;
/// Evaluations, items passed over, and so many bytes read as take as long: about 0.1 s. A
/// conversation adds to it for its size.
inline constexpr std::uint64_t kStepsMax = 1'000'000;
inline constexpr std::uint64_t kStepsPerValue = 2'000;
/// Bytes of all texts and lists made on the way, and the same for each byte of the conversation.
inline constexpr std::uint64_t kBytesMax = 32u << 20;
inline constexpr std::uint64_t kBytesPerByte = 64;

/// What one rendering has spent and whether it failed. The first failure is kept: what comes after
/// it computes with harmless values and ends soon, since everything that loops asks failed().
class Context {
 public:
  struct Budget {
    std::uint64_t steps = kStepsMax;
    std::uint64_t bytes = kBytesMax;
    std::int64_t now_unix_s = 0;  ///< what strftime_now tells
  };
  explicit Context(Budget budget) : left_(budget) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }
  /// Returns an undefined value, so that a caller can return what this returns.
  Value fail(const std::string& what);
  /// raise_exception: the template's own words.
  Value raise(std::string words);

  /// All are false, and the rendering has failed, if that is more than is left.
  bool spend(std::uint64_t steps);
  bool spend_bytes(std::uint64_t bytes);
  /// For looking at each character of a text.
  bool spend_characters(std::string_view text) { return spend(text.size() / 8); }
  /// And for a list of them, as text::characters makes.
  bool spend_list_of(std::string_view text) {
    return spend_characters(text) && spend_bytes(text.size() * sizeof(std::string_view));
  }
  /// For a search of `part` anywhere in `text`, as bad as it can be.
  bool spend_search(std::string_view text, std::string_view part) {
    return spend(text.size() / 64 + text.size() * part.size() / 256);
  }
  /// A text that was made.
  Value text(std::string text);
  /// A list or a dictionary that was made.
  Value list(Values items, bool tuple = false);
  Value dict(Dict dict);
  /// A namespace that was made. It may come to hold itself, so it is emptied in the end.
  Value space(std::shared_ptr<Namespace> space);

  void at(int line) { line_ = line; }
  int line() const { return line_; }
  std::int64_t now_unix_s() const { return left_.now_unix_s; }

 private:
  Budget left_;
  int line_ = 0;
  Status status_;
  std::vector<std::shared_ptr<Namespace>> spaces_;
};

}  // namespace troupe::jinja
