#include "tools/troupe/lifetime.h"

#include <charconv>
#include <ctime>

namespace troupe::cli {
namespace {

constexpr std::int64_t kDaysMax = 3650;
/// Certificates tell their times in whole seconds.
constexpr std::int64_t kCertificateSecondsMin = 5;

}  // namespace

Result<std::optional<std::int64_t>> parse_lifetime(const std::string& flag, std::string_view text) {
  if (text == "never") return std::optional<std::int64_t>();
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  std::int64_t seconds = 0;
  if (unit == "s") seconds = 1;
  if (unit == "m") seconds = 60;
  if (unit == "h") seconds = 60 * 60;
  if (unit == "d") seconds = 24 * 60 * 60;
  if (error != std::errc() || seconds == 0 || count <= 0 ||
      count > kDaysMax * 24 * 60 * 60 / seconds)
    return invalid_argument(flag + ": '" + std::string(text) +
                            "' is no time; expected one such as 30m, 24h, 7d or never.");
  return std::optional(count * seconds);
}

Result<std::int64_t> parse_certificate_lifetime(std::string_view text) {
  const std::string flag = "--certificate-lifetime";
  const auto parsed = parse_lifetime(flag, text);
  if (parsed.ok() && *parsed && **parsed >= kCertificateSecondsMin) return **parsed;
  return invalid_argument(flag + ": '" + std::string(text) +
                          "' cannot be; expected a time such as 365d, 30d or 12h.");
}

std::string local_time_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char text[32];
  localtime_r(&time, &parts);
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

}  // namespace troupe::cli
