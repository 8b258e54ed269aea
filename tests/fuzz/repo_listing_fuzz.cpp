#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "tools/troupe/pull/repo_listing.h"

/// Whatever a hub says, no file of it leaves the folder.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::pull;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto check = [](std::string_view path) {
    const auto whole = (std::filesystem::path("/here") / path).lexically_normal().string();
    if (!whole.starts_with("/here/") || whole == "/here/") __builtin_trap();
  };
  if (is_safe_path(text)) check(text);
  if (const auto files = parse_listing(text); files.ok())
    for (const RepoFile& file : *files) check(file.path);
  (void)parse_commit(text);
  (void)next_page(text);
  return 0;
}
