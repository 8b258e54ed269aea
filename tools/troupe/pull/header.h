#pragma once

#include <string>
#include <string_view>

#include "runtime/result.h"
#include "tools/troupe/pull/mirrors.h"
#include "tools/troupe/pull/repo_listing.h"

/// The header of a safetensors file, all that a head needs of one. No checksum is known of it: what
/// it says must fill the file, and workers, who have it with the whole, say when theirs is another.
namespace troupe::pull {

Status check_header(std::string_view header, const RepoFile& file);

/// With its length before it, from the first endpoint that gives a good one.
Result<std::string> fetch_header(const RepoFile& file, Mirrors& mirrors, Connections& connections);

}  // namespace troupe::pull
