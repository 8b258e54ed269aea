#include "model/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

struct NewerRange {
  char32_t first;
  char32_t last;
};

/// What normal forms change since Unicode 9, the version that Hugging Face's tokenizers normalize
/// by while they know 16 elsewhere. These stay as they are, and nothing moves past them.
constexpr NewerRange kSinceUnicode9[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},
    {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935},
    {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
    {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1},
    {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

bool since_unicode_9(char32_t c) {
  const auto* range = std::lower_bound(std::begin(kSinceUnicode9), std::end(kSinceUnicode9), c,
                                       [](const NewerRange& r, char32_t x) { return r.last < x; });
  return range != std::end(kSinceUnicode9) && range->first <= c;
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/// Whether NFC cannot change a text of such characters: they neither decompose nor combine.
bool always_nfc(char32_t c) {
  return c < 0x300 || (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) ||
         (c >= 0x2002 && c <= 0x20CF) || (c >= 0x3000 && c <= 0x3029) ||
         (c >= 0x3030 && c <= 0x3098) || (c >= 0x309B && c <= 0x30FF) ||
         (c >= 0xFF00 && c <= 0xFFEF);
}

bool always_nfc(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (!always_nfc(utf8::decode(text, i))) return false;
  }
  return true;
}

/// Marks that follow one another are sorted by class. The library would do it in quadratic time.
void sort_marks(std::vector<utf8proc_int32_t>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, text.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

/// Ends early, with more than `bytes_max` bytes, if there are more.
std::string replace_all(std::string_view text, const Normalizer::Replace& stage,
                        std::size_t bytes_max) {
  std::string out;
  for (std::size_t begin = 0; out.size() <= bytes_max;) {
    const std::size_t found = text.find(stage.from, begin);
    out += text.substr(begin, found - begin);
    if (found == std::string_view::npos) break;
    out += stage.to;
    begin = found + stage.from.size();
  }
  return out;
}

}  // namespace

namespace {

class NormalText {
 public:
  explicit NormalText(NormalForm form)
      : composed_(form == NormalForm::kNfc || form == NormalForm::kNfkc),
        compatible_(form == NormalForm::kNfkc || form == NormalForm::kNfkd) {}

  void add(char32_t c) {
    if (since_unicode_9(c)) {
      flush();
      utf8::append(out_, c);
      return;
    }
    std::array<utf8proc_int32_t, 32> parts;  // The longest decomposition has 18.
    const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible_ ? UTF8PROC_COMPAT : 0);
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                static_cast<utf8proc_option_t>(options), &boundary);
    assert(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    characters_.insert(characters_.end(), parts.begin(), parts.begin() + count);
  }

  std::string finish() {
    flush();
    return std::move(out_);
  }

 private:
  void flush() {
    sort_marks(characters_);
    if (composed_) {
      const utf8proc_ssize_t count = utf8proc_normalize_utf32(
          characters_.data(), static_cast<utf8proc_ssize_t>(characters_.size()),
          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      assert(count >= 0);
      characters_.resize(static_cast<std::size_t>(count));
    }
    for (const utf8proc_int32_t c : characters_) utf8::append(out_, static_cast<char32_t>(c));
    characters_.clear();
  }

  bool composed_;
  bool compatible_;
  std::vector<utf8proc_int32_t> characters_;
  std::string out_;
};

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (form == NormalForm::kNfc && always_nfc(text)) return std::string(text);
  NormalText normal(form);
  for (std::size_t i = 0; i < text.size();) normal.add(utf8::decode(text, i));
  return normal.finish();
}

std::optional<std::size_t> Normalizer::shrink_max() const {
  // A mathematical letter of four bytes becomes one of ASCII; composed characters save less.
  constexpr std::size_t kFormShrinkMax = 4;
  constexpr std::size_t kOfInterestMax = 1u << 20;
  std::size_t all = 1;
  for (const auto& stage : stages_) {
    if (std::holds_alternative<NormalForm>(stage)) {
      all *= kFormShrinkMax;
    } else if (const auto* replace = std::get_if<Replace>(&stage)) {
      if (replace->to.empty()) return std::nullopt;
      const std::size_t to = replace->to.size();
      all *= std::max<std::size_t>(1, (replace->from.size() + to - 1) / to);
    }
    if (all > kOfInterestMax) return std::nullopt;
  }
  return all;
}

Result<std::string> Normalizer::apply(std::string_view text, std::size_t bytes_max) const {
  std::string out(text);
  for (const auto& stage : stages_) {
    if (const auto* form = std::get_if<NormalForm>(&stage)) {
      out = to_normal_form(out, *form);
    } else if (const auto* replace = std::get_if<Replace>(&stage)) {
      out = replace_all(out, *replace, bytes_max);
    } else if (!out.empty()) {
      out.insert(0, std::get<Prepend>(stage).text);
    }
    if (out.size() > bytes_max) {
      return invalid_argument("the normalizer of the tokenizer's file makes more than " +
                              std::to_string(bytes_max) + " bytes of " +
                              std::to_string(text.size()));
    }
  }
  return out;
}

}  // namespace troupe
