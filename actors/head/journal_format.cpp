#include "actors/head/journal_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "runtime/limits.h"
#include "runtime/xxh3.h"

namespace troupe::journal_format {
namespace {

constexpr std::string_view kName = "troupe-journal-";
constexpr std::string_view kOldLine = "troupe-journal-1 ";
constexpr std::string_view kCheck = " check=";
/// Longer than any first line.
constexpr std::size_t kLineBytesMax = 4096;

std::uint64_t hash_of(std::string_view text) { return xxh3_64(text.data(), text.size()); }

/// One that can stand in a line: neither empty nor with a space, as all models and ids are.
bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

template <class T>
bool read_number(std::string_view text, T& number, int base = 10) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return bad == std::errc() && end == text.data() + text.size();
}

std::string hex(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[number >> (4 * i) & 15];
  return text;
}

std::optional<std::string_view> line_of(std::string_view bytes) {
  const std::size_t end = bytes.substr(0, kLineBytesMax).find('\n');
  if (end == bytes.npos) return std::nullopt;
  return bytes.substr(0, end);
}

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), begin, begin + sizeof value);
}
template <class T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint64_t content_check(std::uint64_t file, std::uint64_t serial,
                            std::span<const std::byte> content) {
  return xxh3_64(content.data(), content.size(), file ^ serial);
}
constexpr std::size_t kCheckedHeadBytes = 32;
static_assert(kCheckedHeadBytes + sizeof(std::uint64_t) == kFrameHeadBytes);

}  // namespace

Result<std::string> write(const Heading& heading) {
  const std::string cluster = heading.cluster.empty() ? "-" : heading.cluster;
  std::string line(kName);
  line += std::to_string(kVersion) + " model=" + heading.model + " cluster=" + cluster +
          " numerics=" + (heading.numerics.empty() ? "-" : heading.numerics) +
          " term=" + std::to_string(heading.term) +
          " request=" + std::to_string(heading.next_request) +
          " sequence=" + std::to_string(heading.next_sequence) + " file=" + hex(heading.file) +
          " masks=" + std::to_string(heading.masks);
  line += std::string(kCheck) + hex(hash_of(line));
  if (!is_word(heading.model) || !is_word(cluster) || line.size() + 1 > kHeadingBytes)
    return invalid_argument("A journal cannot be of the model '" + heading.model +
                            "' and the cluster '" + cluster + "'.");
  line.resize(kHeadingBytes - 1, ' ');
  return line + '\n';
}

std::optional<Line> read_line(std::string_view bytes) {
  const auto line = line_of(bytes);
  const std::size_t check_at = line ? line->rfind(kCheck) : std::string_view::npos;
  if (check_at == std::string_view::npos || !line->starts_with(kName)) return std::nullopt;
  const std::string_view checked = line->substr(0, check_at);
  std::string_view check = line->substr(check_at + kCheck.size());
  const std::size_t check_end = std::min(check.find(' '), check.size());
  if (check.find_first_not_of(' ', check_end) != check.npos) return std::nullopt;
  std::uint64_t sum = 0;
  if (!read_number(check.substr(0, check_end), sum, 16) || sum != hash_of(checked))
    return std::nullopt;
  Line out;
  std::map<std::string_view, std::string_view> fields;
  std::string_view rest = checked.substr(kName.size());
  const std::string_view version = rest.substr(0, rest.find(' '));
  if (!read_number(version, out.version) || out.version < kVersion) return std::nullopt;
  if (out.version > kVersion) return out;  // nobody here knows what else it says
  rest.remove_prefix(version.size());
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view field = rest.substr(0, rest.find(' '));
    rest.remove_prefix(field.size());
    const std::size_t equals = std::min(field.find('='), field.size());
    fields[field.substr(0, equals)] = field.substr(std::min(equals + 1, field.size()));
  }
  Heading& heading = out.heading;
  heading.model = fields["model"];
  if (fields["cluster"] != "-") heading.cluster = fields["cluster"];
  if (fields["numerics"] != "-") heading.numerics = fields["numerics"];
  if (!read_number(fields["term"], heading.term) ||
      !read_number(fields["request"], heading.next_request) ||
      !read_number(fields["sequence"], heading.next_sequence) ||
      !read_number(fields["file"], heading.file, 16) ||
      (fields.contains("masks") && !read_number(fields["masks"], heading.masks)))
    return std::nullopt;
  return out;
}

std::optional<std::string> read_old_line(std::string_view bytes) {
  const auto line = line_of(bytes);
  if (!line || !line->starts_with(kOldLine)) return std::nullopt;
  const std::string_view model = line->substr(kOldLine.size());
  if (!is_word(model)) return std::nullopt;
  return std::string(model);
}

void put_frame(std::vector<std::byte>& out, const FrameHead& head,
               std::span<const std::byte> content) {
  const std::size_t at = out.size();
  put(out, head.file);
  put(out, head.serial);
  put(out, head.kind);
  put(out, static_cast<std::uint32_t>(content.size()));
  put(out, content_check(head.file, head.serial, content));
  put(out, xxh3_64(out.data() + at, kCheckedHeadBytes));
  out.insert(out.end(), content.begin(), content.end());
}

std::optional<FrameHead> read_head(std::span<const std::byte> bytes) {
  if (get<std::uint64_t>(bytes, kCheckedHeadBytes) != xxh3_64(bytes.data(), kCheckedHeadBytes))
    return std::nullopt;
  FrameHead head{get<std::uint64_t>(bytes, 0), get<std::uint64_t>(bytes, 8),
                 get<Kind>(bytes, 16), get<std::uint32_t>(bytes, 20),
                 get<std::uint64_t>(bytes, 24)};
  if (head.length > limits::kJournalRecordBytesMax) return std::nullopt;
  return head;
}

bool is_whole(const FrameHead& head, std::span<const std::byte> content) {
  return head.check == content_check(head.file, head.serial, content);
}

std::optional<OldFrameHead> read_old_head(std::span<const std::byte> bytes) {
  const OldFrameHead head{get<std::uint32_t>(bytes, 0), get<std::uint64_t>(bytes, 4)};
  if (head.length == 0 || head.length % 8 != 0 ||
      head.length > limits::kJournalRecordBytesMax)
    return std::nullopt;
  return head;
}

bool is_whole(const OldFrameHead& head, std::span<const std::byte> content) {
  return head.check == xxh3_64(content.data(), content.size(), content.size());
}

}  // namespace troupe::journal_format
