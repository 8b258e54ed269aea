#include <algorithm>
#include <charconv>

#include "actors/control/credential_text.h"
#include "actors/control/credentials.h"
#include "actors/control/pem.h"
#include "actors/control/private_file.h"

namespace troupe {
namespace {

constexpr std::string_view kJoinTitle = "troupe-join 1";
constexpr std::size_t kHostBytesMax = 255;

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_' || c == ':' || c == '%';
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port) {
  const auto wrong = [&] {
    return invalid_argument("\"" + std::string(text.substr(0, 2 * kHostBytesMax)) +
                            "\" is no address; expected HOST:PORT, such as 10.0.0.1:6379.");
  };
  std::string_view host = text, port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos) return wrong();
    host = text.substr(1, end - 1);
    has_port = end + 1 < text.size();
    if (has_port && text[end + 1] != ':') return wrong();
    if (has_port) port = text.substr(end + 2);
  } else if (std::ranges::count(text, ':') == 1) {  // more of them: a bare IPv6 address
    has_port = true;
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
  }
  const bool port_alone = !has_port && host.find_first_not_of("0123456789") == host.npos;
  HostPort address{std::string(host), default_port};
  if (port_alone || host.empty() || host.size() > kHostBytesMax ||
      !std::ranges::all_of(host, is_host_char))
    return wrong();
  if (has_port) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc() || end != port.data() + port.size()) return wrong();
  }
  return address;
}

std::string to_string(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return (brackets ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::string format_join_file(const JoinFile& join) {
  std::vector<control::Entry> entries;
  for (const std::string& head : join.heads) entries.emplace_back("head", head);
  entries.emplace_back("ca-certificate", join.worker.ca_certificate);
  entries.emplace_back("worker-certificate", join.worker.certificate);
  entries.emplace_back("worker-key", join.worker.private_key);
  return control::format_entries(kJoinTitle, entries);
}

Result<JoinFile> parse_join_file(std::string_view text, const std::string& name) {
  const auto wrong = [&](const std::string& what) {
    return corrupt("The join file " + name + " " + what + "; copy it from the head again.");
  };
  if (text.size() > kJoinFileBytesMax) return wrong("is too long");
  const auto entries = control::parse_entries(kJoinTitle, text);
  if (!entries.ok() && entries.error().code == ErrorCode::kRefused)
    return refused("The join file " + name + " " + entries.error().message +
                   "; use the head's version here too.");
  if (!entries.ok()) return wrong(entries.error().message);
  JoinFile join;
  for (const auto& [key, value] : *entries) {
    if (key != "head") continue;
    const auto head = parse_host_port(value);
    if (!head.ok() || head->port == 0) return wrong("names a head at no address");
    if (join.heads.size() == kJoinFileHeadsMax) return wrong("names too many heads");
    join.heads.push_back(to_string(*head));
  }
  if (join.heads.empty()) return wrong("names no head");
  join.worker = {control::only_value(*entries, "ca-certificate"),
                 control::only_value(*entries, "worker-certificate"),
                 control::only_value(*entries, "worker-key")};
  if (const Status status = control::check_credentials(join.worker); !status.ok())
    return wrong("is damaged: " + status.error().message);
  return join;
}

Status write_join_file(const std::filesystem::path& path, const JoinFile& join) {
  return control::write_private_file(path, format_join_file(join), control::IfExists::kReplace);
}

Result<JoinFile> read_join_file(const std::filesystem::path& path) {
  const auto text = control::read_small_file(path, kJoinFileBytesMax);
  if (text.ok()) return parse_join_file(*text, path.string());
  if (text.error().code != ErrorCode::kNotFound) return text.error();
  return not_found(
      "There is no join file at " + path.string() +
      "; copy the file \"join\" from the head's state folder and name it with --join.");
}

}  // namespace troupe
