#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/result.h"

/// Small files that only their owner may read.
namespace troupe::control {

/// Makes the folder, for its owner only, and those above it.
Status make_private_folder(const std::filesystem::path& folder);

/// Has a file, or folder, that root's command has made in a folder of a service's belong to that
/// service, where the file system lets root do so.
void give_to_owner_of_folder(int fd, const std::filesystem::path& path);

enum class IfExists { kReplace, kKeep };

/// Writes it with mode 0600 so that others see all of it or nothing. With kKeep a file that is
/// there stays as it is, which is no error.
Status write_private_file(const std::filesystem::path& path, std::string_view content,
                          IfExists if_exists);

/// Errors: kNotFound, kCorrupt (longer than `bytes_max`, or no regular file), kUnavailable.
Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace troupe::control
