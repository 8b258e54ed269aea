// The formats that the specification defines. All that matches one is of its format; some that few
// people write is left out: two-digit years, leap seconds, comments in addresses, punycode.

#include <algorithm>

#include "model/grammar/json_schema.h"

namespace troupe {
namespace {

std::string either(const std::string& a, const std::string& b) { return "(?:" + a + "|" + b + ")"; }

std::string date() {
  const std::string day28 = "(?:0[1-9]|1[0-9]|2[0-8])";
  const std::string days =
      "(?:(?:0[1-9]|1[0-2])-" + day28 + "|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)";
  const std::string fourth = "(?:[2468][048]|[13579][26])";
  return either("[1-9][0-9]{3}-" + days,
                "(?:[1-9][0-9](?:0[48]|" + fourth + ")|" + fourth + "00)-02-29");
}

std::string time() {
  const std::string hour = "(?:[01][0-9]|2[0-3])";
  return hour + ":[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" + hour + ":[0-5][0-9])";
}

std::string duration() {
  const auto chain = [](const std::string& a, const std::string& b, const std::string& c) {
    const std::string n = "[0-9]{1,4}";  // what readers turn into days has bounds
    const std::string last = n + c;
    const std::string two = n + b + "(?:" + last + ")?";
    return "(?:" + n + a + "(?:" + two + ")?|" + two + "|" + last + ")";
  };
  const std::string clock = "T" + chain("H", "M", "S");
  return "P(?:" + chain("Y", "M", "D") + "(?:" + clock + ")?|" + clock + "|[0-9]{1,4}W)";
}

std::string hostname() {
  // At most 239 characters, of the 253 that a name may have.
  const std::string more = "(?:-?[A-Za-z0-9]){0,19}";
  return "(?:[A-Za-z0-9]" + more + "\\.){0,5}[A-Za-z]" + more;
}

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  return atom + "(?:\\.?" + atom + "){0,31}@" + hostname();
}

std::string ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return byte + "(?:\\." + byte + "){3}";
}

std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  std::string out = "(?:" + h + ":){7}" + h + "|(?:" + h + ":){1,7}:|:(?::" + h + "){1,7}|::";
  for (int before = 1; before <= 6; ++before)
    out += "|(?:" + h + ":){" + std::to_string(before) + "}(?::" + h + "){1," +
           std::to_string(7 - before) + "}";
  return out;
}

const char* const kSegment = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";

std::string path_and_query() {
  const std::string segment = kSegment;
  const std::string query = "(?:" + segment + "|[/?])*";
  return "(?:/" + segment + "*)*(?:\\?" + query + ")?(?:#" + query + ")?";
}

std::string uri() {
  const std::string authority =
      "(?:[A-Za-z0-9._~-]{1,64}@)?[A-Za-z0-9](?:[A-Za-z0-9._~-]*)(?::[0-9]{1,5})?";
  return "[A-Za-z][A-Za-z0-9+.-]{0,31}:(?://(?:" + authority + ")?" + path_and_query() + "|" +
         kSegment + "+" + path_and_query() + ")";
}

std::string uri_reference() {
  const std::string segment = kSegment;
  const std::string first = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+";
  const std::string tail = "(?:\\?(?:" + segment + "|[/?])*)?(?:#(?:" + segment + "|[/?])*)?";
  return either(uri(), "(?:/(?:" + segment + "+(?:/" + segment + "*)*)?|" + first + "(?:/" +
                           segment + "*)*|)" + tail);
}

/// Characters of a path and a query, without those that come in threes.
std::string counted_uri(std::size_t min, std::size_t max) {
  // What stands before the tail has 5 to 18 characters and a host's further ones.
  const std::size_t host = std::min<std::size_t>(40, max / 4);
  const std::string least = std::to_string(min > 6 ? min - 6 : 0);
  return "[A-Za-z][A-Za-z0-9+.-]{0,7}://[A-Za-z0-9][A-Za-z0-9._~-]{0," + std::to_string(host) +
         "}(?::[0-9]{1,5})?(?:[/?][A-Za-z0-9._~!$&'()*+,;=:@/?-]{" + least + "," +
         std::to_string(max - 19 - host) + "})" + (min > 6 ? "" : "?");
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view format, std::size_t length_min,
                                          std::size_t& length_max) {
  // Labels of a host's name have at most 63 characters, as any such text has.
  constexpr std::size_t kLabelMax = 63;
  constexpr std::size_t kHostMax = 239;
  constexpr std::size_t kEmailMax = 303;
  constexpr std::size_t kCountedUriMin = 32;
  const auto bounded = [&](std::size_t min, std::size_t max) {
    if (length_min <= min && length_max >= max) return false;
    length_max = std::min(length_max, kLabelMax);
    return true;
  };
  const std::string label = "[A-Za-z0-9](?:-?[A-Za-z0-9])*";
  if (format == "date") return date();
  if (format == "time") return time();
  if (format == "date-time") return date() + "T" + time();
  if (format == "duration") return duration();
  if (format == "email" || format == "idn-email") {
    if (!bounded(3, kEmailMax)) return email();
    return "[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@(?:" + label + "\\.)*[A-Za-z](?:-?[A-Za-z0-9])*";
  }
  if (format == "hostname" || format == "idn-hostname") {
    if (!bounded(1, kHostMax)) return hostname();
    return "(?:" + label + "\\.)*[A-Za-z](?:-?[A-Za-z0-9])*";
  }
  if (format == "ipv4") return ipv4();
  if (format == "ipv6") return ipv6();
  if (format == "uuid") return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  const bool is_uri = format == "uri" || format == "iri";
  const bool is_reference = format == "uri-reference" || format == "iri-reference";
  if ((is_uri || is_reference) && length_max != Regex::kUnbounded && length_max >= kCountedUriMin) {
    if (length_min <= kCountedUriMin / 2)
      return counted_uri(length_min, std::min(length_max, Regex::kCountMax));
  }
  if (is_uri) return uri();
  if (is_reference) return uri_reference();
  if (format == "json-pointer") return "(?:/(?:[^~/]|~[01])*)*";
  if (format == "relative-json-pointer") return "(?:0|[1-9][0-9]{0,5})(?:#|(?:/(?:[^~/]|~[01])*)*)";
  return std::nullopt;
}

}  // namespace troupe
