#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

/// What an endpoint says that a repository holds: foreign bytes, checked here once.
namespace troupe::pull {

struct RepoFile {
  std::string path;  ///< relative, and safe to be made below a folder
  std::uint64_t size = 0;
  std::string digest;   ///< small hexadecimal digits
  bool is_lfs = false;  ///< the digest is SHA-256 of the bytes; else that of git's blob (SHA-1)
};

/// 40 hexadecimal digits, small ones.
bool is_commit(std::string_view text);

/// The commit that a revision is, 40 hexadecimal digits: the answer of .../revision/REV.
Result<std::string> parse_commit(std::string_view json);

/// One page of .../tree/REV. kCorrupt is the end of a sentence about the listing.
Result<std::vector<RepoFile>> parse_listing(std::string_view json);

/// Whether the path stays below the folder that it is put in, and is a name that people can read.
bool is_safe_path(std::string_view path);

/// Where the next page is, of a Link field; empty: there is none.
std::string next_page(std::string_view link);

/// A path as part of an address.
std::string url_path(std::string_view path);

/// Whether one of `include` fits, if there are any, and none of `exclude`; `*` fits slashes too.
bool is_wanted(const std::string& path, const std::vector<std::string>& include,
               const std::vector<std::string>& exclude);

}  // namespace troupe::pull
