#include "tools/troupe/console/canvas.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace troupe::console {
namespace {

/// The next code point; U+FFFD for what is no UTF-8.
char32_t take(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const int more = first < 0x80 ? 0 : (first >> 5) == 6 ? 1 : (first >> 4) == 14 ? 2 : 3;
  text.remove_prefix(1);
  if (more == 0) return first;
  if (first < 0xC2 || first > 0xF4) return U'\uFFFD';
  char32_t code = first & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    if (text.empty() || (static_cast<unsigned char>(text.front()) >> 6) != 2) return U'\uFFFD';
    code = code << 6 | (static_cast<unsigned char>(text.front()) & 0x3F);
    text.remove_prefix(1);
  }
  return code;
}

/// Terminals agree on the width of these; control characters, marks that change the direction of
/// writing or stand above a letter, and wide letters are none of them.
bool plain(char32_t c) {
  return (c >= 0x20 && c < 0x7F) || (c >= 0xA0 && c < 0x300 && c != 0xAD) ||
         (c >= 0x370 && c < 0x483) || (c >= 0x48A && c < 0x530) || (c >= 0x2010 && c < 0x2028) ||
         (c >= 0x2190 && c < 0x2200) || (c >= 0x2500 && c < 0x2600);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    put(0xE0 | c >> 12);  // plain() lets nothing above 0xFFFF pass
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace

Style heat(int level) {
  assert(level >= 0 && level < kHeatLevels);
  return static_cast<Style>(static_cast<int>(Style::kHeat0) + level);
}

Canvas::Canvas(int width, int height)
    : width_(width),
      height_(height),
      cells_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {}

std::string Canvas::row(int y) const {
  std::string out;
  for (int x = 0; x < width_; ++x) append_utf8(out, at(x, y).glyph);
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

Area::Area(Canvas& canvas, int x, int y, int width, int height)
    : canvas_(&canvas),
      x_(std::clamp(x, 0, canvas.width())),
      y_(std::clamp(y, 0, canvas.height())),
      width_(std::clamp(width, 0, canvas.width() - x_)),
      height_(std::clamp(height, 0, canvas.height() - y_)) {}

Area Area::rows(int first, int count) const {
  first = std::clamp(first, 0, height_);
  return {*canvas_, x_, y_ + first, width_, std::clamp(count, 0, height_ - first)};
}
Area Area::columns(int first, int count) const {
  first = std::clamp(first, 0, width_);
  return {*canvas_, x_ + first, y_, std::clamp(count, 0, width_ - first), height_};
}

void Area::glyph(int x, int y, char32_t glyph, Style style, bool mark) const {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  canvas_->at(x_ + x, y_ + y) = {plain(glyph) ? glyph : U'?', style, mark};
}

int Area::put(int x, int y, std::string_view text, Style style, bool mark) const {
  while (!text.empty()) glyph(x++, y, take(text), style, mark);
  return x;
}

int Area::put_left(int x, int y, int width, std::string_view text, Style style) const {
  const int end = x + std::max(0, width);
  const bool cut = columns_of(text) > width;
  for (; x < end; ++x) {
    char32_t c = text.empty() ? U' ' : take(text);
    if (cut && x == end - 1) c = U'~';
    glyph(x, y, c, style);
  }
  return end;
}

int Area::put_right(int x, int y, int width, std::string_view text, Style style) const {
  const int blanks = std::max(0, width - columns_of(text));
  for (int i = 0; i < blanks; ++i) glyph(x + i, y, U' ', style);
  return put_left(x + blanks, y, width - blanks, text, style);
}

void Area::paint(int y, Style style) const {
  if (y < 0 || y >= height_) return;
  for (int x = 0; x < width_; ++x) canvas_->at(x_ + x, y_ + y).style = style;
}

int columns_of(std::string_view text) {
  int columns = 0;
  for (; !text.empty(); ++columns) take(text);
  return columns;
}

std::string plain_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char32_t c = take(text);
    append_utf8(out, plain(c) ? c : U'?');
  }
  return out;
}

Glyphs ascii_glyphs() { return {}; }
Glyphs unicode_glyphs() {
  return {U'\u2588', U'\u2591', U'\u2500', U" \u00B7\u2591\u2592\u2593\u2588", "\u2192"};
}

int put_bar(const Area& area, int x, int y, int width, double fraction, Style style,
            const Glyphs& glyphs) {
  const int filled = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width));
  for (int i = 0; i < width; ++i)
    area.glyph(x + i, y, i < filled ? glyphs.bar : glyphs.no_bar, i < filled ? style : Style::kDim);
  return x + width;
}

Style share_style(double fraction) {
  return fraction >= 0.95 ? Style::kBad : fraction >= 0.8 ? Style::kWarning : Style::kGood;
}

}  // namespace troupe::console
