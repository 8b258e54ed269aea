#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/result.h"

/// The text form of the credentials file and the join file:
///
///     troupe-join 1
///     head 10.0.0.1:6379
///     ca-certificate
///     -----BEGIN CERTIFICATE-----
///     ...
///     -----END CERTIFICATE-----
namespace troupe::control {

/// A line "key value", or a line "key" and the PEM block below it.
using Entry = std::pair<std::string, std::string>;

std::string format_entries(std::string_view title, const std::vector<Entry>& entries);
/// The error is the end of a sentence about the file; kRefused if only the number in its title is
/// another: another version of Troupe wrote it.
Result<std::vector<Entry>> parse_entries(std::string_view title, std::string_view text);

/// The one value of `key`; empty if there is none or more than one.
std::string only_value(const std::vector<Entry>& entries, std::string_view key);

}  // namespace troupe::control
