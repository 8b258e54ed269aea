#include "tools/troupe/pull/header.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "model/checkpoint.h"
#include "runtime/log.h"

namespace troupe::pull {
namespace {

/// Asked for first: more than most headers have.
constexpr std::uint64_t kHeaderBytesLikely = 256 << 10;

/// With the length before it, as the first bytes of the file say.
Result<std::uint64_t> header_size(std::string_view begin, const RepoFile& file) {
  const auto bytes = std::as_bytes(std::span(begin.substr(0, 8)));
  const auto length = safetensors_header_length(bytes, file.size, file.path);
  if (!length.ok()) return length.error();
  return 8 + *length;
}

}  // namespace

Status check_header(std::string_view header, const RepoFile& file) {
  const auto size = header_size(header, file);
  if (!size.ok()) return size.error();
  if (*size != header.size()) return corrupt(file.path + " is not a header alone");
  const auto bytes = std::as_bytes(std::span(header));
  const auto parsed = parse_safetensors_header(bytes, file.size, file.path);
  return parsed.ok() ? Status() : parsed.error();
}

Result<std::string> fetch_header(const RepoFile& file, Mirrors& mirrors,
                                 Connections& connections) {
  Status good;
  for (std::size_t endpoint = 0; endpoint < connections.size(); ++endpoint) {
    if (!good.ok()) logger().warn("{}: the next endpoint is asked", good.error().message);
    std::string bytes;
    const auto fetch_up_to = [&](std::uint64_t size) {
      if (size <= bytes.size()) return Status();
      return mirrors.fetch({file.path, bytes.size(), size - bytes.size(), file.size, endpoint},
                           connections, [&](std::uint64_t, std::string_view more) {
                             bytes += more;
                             return Status();
                           });
    };
    const Status begun = fetch_up_to(std::min(file.size, kHeaderBytesLikely));
    if (!begun.ok()) return begun.error();
    const auto size = header_size(bytes, file);
    good = size.ok() ? Status() : size.error();
    if (!good.ok()) continue;
    if (const Status all = fetch_up_to(*size); !all.ok()) return all.error();
    bytes.resize(static_cast<std::size_t>(*size));
    good = check_header(bytes, file);
    if (good.ok()) return bytes;
  }
  return corrupt(good.error().message + "; it is not kept. Try again, or another --endpoint.");
}

}  // namespace troupe::pull
