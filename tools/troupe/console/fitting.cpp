#include "tools/troupe/console/fitting.h"

#include "tools/troupe/console/canvas.h"
#include "tools/troupe/console/format.h"

namespace troupe::console {
namespace {

/// Bytes of the first `columns` columns.
std::size_t bytes_of(std::string_view text, int columns) {
  std::size_t bytes = 0;
  for (; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xC0) != 0x80;
    if (begins && columns-- == 0) break;
  }
  return bytes;
}

}  // namespace

std::string fitting(const std::vector<std::string>& clauses, std::string_view separator,
                    int width) {
  std::string out;
  for (const std::string& clause : clauses) {
    if (clause.empty()) continue;
    const std::string longer = out.empty() ? clause : out + std::string(separator) + clause;
    if (out.empty() || columns_of(longer) <= width) out = longer;
  }
  return out;
}

std::vector<std::string> broken(std::string_view text, int width, std::size_t rows_max) {
  std::vector<std::string> rows;
  while (width > 0 && rows.size() + 1 < rows_max && columns_of(text) > width) {
    const std::size_t end = bytes_of(text, width);
    const std::size_t space = text.rfind(' ', end);
    const bool between = space != text.npos && space > 0;
    rows.emplace_back(text.substr(0, between ? space : end));
    text.remove_prefix(between ? space + 1 : end);
  }
  rows.emplace_back(text);
  return rows;
}

std::string some_fitting(const std::vector<std::string>& words, int width) {
  std::string text = joined(words, ", ");
  for (std::size_t shown = words.size(); columns_of(text) > width && shown-- > 1;)
    text = joined({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ") +
           ", +" + std::to_string(words.size() - shown);
  return text;
}

}  // namespace troupe::console
