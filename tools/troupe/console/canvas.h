#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::console {

/// What a cell means; how that looks is the terminal's matter (colour, or none).
enum class Style : std::uint8_t {
  kPlain,
  kDim,
  kStrong,
  kTitle,     ///< bars across the screen
  kSelected,  ///< the row that the keys speak of
  kGood,
  kWarning,
  kBad,
  kMoved,  ///< changed a moment ago
  kHeat0,  ///< nothing to do ...
  kHeat1,
  kHeat2,
  kHeat3,
  kHeat4,
  kHeat5,  ///< ... far too much
};
inline constexpr int kHeatLevels = 6;
inline constexpr int kStyles = static_cast<int>(Style::kHeat5) + 1;
Style heat(int level);  ///< 0 to kHeatLevels - 1

struct Cell {
  char32_t glyph = U' ';
  Style style = Style::kPlain;
  bool mark = false;  ///< underlined
  bool operator==(const Cell&) const = default;
};

/// The screen as it should be: cells of one column each.
class Canvas {
 public:
  Canvas(int width, int height);
  int width() const { return width_; }
  int height() const { return height_; }
  const Cell& at(int x, int y) const { return cells_[index(x, y)]; }
  Cell& at(int x, int y) { return cells_[index(x, y)]; }
  /// A row as UTF-8, without the blanks at its end.
  std::string row(int y) const;

 private:
  std::size_t index(int x, int y) const {
    return static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
           static_cast<std::size_t>(x);
  }
  int width_, height_;
  std::vector<Cell> cells_;
};

/// A rectangle of a canvas that something draws itself into; what does not fit is cut off.
class Area {
 public:
  explicit Area(Canvas& canvas) : Area(canvas, 0, 0, canvas.width(), canvas.height()) {}
  Area(Canvas& canvas, int x, int y, int width, int height);

  int width() const { return width_; }
  int height() const { return height_; }
  Area rows(int first, int count) const;     ///< of the full width
  Area columns(int first, int count) const;  ///< of the full height

  /// Writes UTF-8 from column `x` of row `y`; returns the column behind it. Text comes from other
  /// machines: whatever is not one plain column wide is shown as '?'.
  int put(int x, int y, std::string_view text, Style style = Style::kPlain,
          bool mark = false) const;
  /// The same within `width` columns: cut off, or filled up with blanks.
  int put_left(int x, int y, int width, std::string_view text, Style style = Style::kPlain) const;
  int put_right(int x, int y, int width, std::string_view text, Style style = Style::kPlain) const;
  void glyph(int x, int y, char32_t glyph, Style style, bool mark = false) const;
  /// Gives a row one style: the blanks too.
  void paint(int y, Style style) const;

 private:
  Canvas* canvas_;
  int x_, y_, width_, height_;
};

/// How many columns put() takes for it.
int columns_of(std::string_view text);
/// The text as put() shows it: nothing in it can steer a terminal.
std::string plain_text(std::string_view text);

/// What is drawn with: plain ASCII, or blocks where the terminal knows them.
struct Glyphs {
  char32_t bar = U'#', no_bar = U'-', line = U'-';
  std::u32string_view heat = U" .-=*#";  ///< kHeatLevels of them, no two alike
  std::string_view arrow = "->";
};
Glyphs ascii_glyphs();
Glyphs unicode_glyphs();

/// A bar of `width` columns, `fraction` of it filled; returns the column behind it.
int put_bar(const Area& area, int x, int y, int width, double fraction, Style style,
            const Glyphs& glyphs);
/// How worrying a share of something bounded is.
Style share_style(double fraction);

}  // namespace troupe::console
