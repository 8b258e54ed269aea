#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/checkpoint.h"
#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

std::uint64_t read_length(std::span<const std::byte> head) {
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<std::uint64_t>(head[i]);
  return length;
}

/// dims product times element size; none when it overflows or a dimension is absurd.
std::optional<std::uint64_t> byte_count(const std::vector<std::int64_t>& shape, std::size_t size) {
  std::uint64_t total = size;
  for (const auto dim : shape)
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dim), &total)) return std::nullopt;
  return total;
}

bool is_offset(const nlohmann::json& value) {
  return value.is_number_unsigned();
}

/// One entry of the header. `named` is "FILE: tensor NAME".
Result<TensorInfo> parse_tensor(const nlohmann::json& entry, const std::string& named) {
  if (!entry.is_object()) return corrupt(named + " should be described by a JSON object");
  const auto dtype = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string())
    return corrupt(named + " should have a dtype, which is a string");
  const auto known = parse_dtype(dtype->get_ref<const std::string&>());
  if (!known)
    return corrupt(named + " has the dtype '" + dtype->get<std::string>().substr(0, 32) +
                   "', which this format does not know");
  if (shape == entry.end() || !shape->is_array() ||
      !std::all_of(shape->begin(), shape->end(), [](const auto& d) {
        return d.is_number_unsigned() &&
               d.template get<std::uint64_t>() <= (std::uint64_t{1} << 48);
      }))
    return corrupt(named + " should have a shape, which is a list of sizes");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !is_offset((*offsets)[0]) || !is_offset((*offsets)[1]))
    return corrupt(named + " should have data_offsets, which are two positions in the file");

  TensorInfo info;
  info.dtype = *known;
  info.shape = shape->get<std::vector<std::int64_t>>();
  const auto begin = (*offsets)[0].get<std::uint64_t>(), end = (*offsets)[1].get<std::uint64_t>();
  const auto bytes = byte_count(info.shape, dtype_size(*known));
  if (end < begin)
    return corrupt(named + " ends at byte " + std::to_string(end) + ", before it begins at " +
                   std::to_string(begin));
  if (!bytes || *bytes != end - begin)
    return corrupt(named + " has data_offsets over " + std::to_string(end - begin) +
                   " bytes, but its dtype and shape take " +
                   (bytes ? std::to_string(*bytes) : std::string("more than 2^64")));
  info.offset = begin;
  info.bytes = *bytes;
  return info;
}

/// Tensors must follow each other without gap or overlap, up to the end of the file.
Status check_offsets(const SafetensorsHeader& header, std::uint64_t data_bytes,
                     const std::string& file) {
  std::vector<std::pair<const std::string*, const TensorInfo*>> by_offset;
  by_offset.reserve(header.tensors.size());
  for (const auto& [name, info] : header.tensors) by_offset.emplace_back(&name, &info);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->offset, a.second->bytes) <
           std::pair(b.second->offset, b.second->bytes);
  });
  // All ends first: a tensor that lies beyond the file also leaves a gap where it should be.
  for (const auto& [name, info] : by_offset)
    if (info->offset + info->bytes > data_bytes)
      return corrupt(file + ": tensor " + *name + " should end at byte " +
                     std::to_string(info->offset + info->bytes) +
                     " of the data, but the file has " + std::to_string(data_bytes) +
                     "; it is truncated or its offsets are wrong");
  std::uint64_t end = 0;
  const std::string* previous = nullptr;
  for (const auto& [name, info] : by_offset) {
    if (info->offset < end)
      return corrupt(file + ": tensor " + *name + " overlaps tensor " + *previous);
    if (info->offset > end)
      return corrupt(file + ": tensor " + *name + " should begin at byte " + std::to_string(end) +
                     " of the data, where the one before it ends, but begins at " +
                     std::to_string(info->offset));
    end = info->offset + info->bytes;
    previous = name;
  }
  if (end != data_bytes)
    return corrupt(file + " has " + std::to_string(data_bytes - end) +
                   " bytes after its last tensor, where it should end");
  return {};
}

}  // namespace

Result<std::uint64_t> safetensors_header_length(std::span<const std::byte> head,
                                                std::uint64_t file_size, const std::string& file) {
  if (file_size < 8 || head.size() < 8)
    return corrupt(file + " has " + std::to_string(file_size) +
                   " bytes, too few for a safetensors file; it is truncated");
  if (std::memcmp(head.data(), "version ", 8) == 0)
    return corrupt(file + " is no safetensors file; it looks like a pointer of Git LFS: get the "
                          "file itself with `git lfs pull`");
  const std::uint64_t length = read_length(head);
  if (length > file_size - 8)
    return corrupt(file + " claims a header of " + std::to_string(length) +
                   " bytes, but only has " + std::to_string(file_size - 8) +
                   " after the length; it is truncated or no safetensors file");
  if (length > limits::kSafetensorsHeaderBytesMax)
    return corrupt(file + " claims a header of " + std::to_string(length) +
                   " bytes, more than the format's " +
                   std::to_string(limits::kSafetensorsHeaderBytesMax));
  return length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   std::uint64_t file_size,
                                                   const std::string& file) {
  const auto length = safetensors_header_length(head, file_size, file);
  if (!length) return length.error();
  if (head.size() - 8 < *length) return corrupt(file + " is truncated in its header");
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, *length);
  auto parsed = parse_json(text, file + " (header)");
  if (!parsed) return parsed.error();
  if (!parsed->is_object()) return corrupt(file + ": the header should be a JSON object");

  SafetensorsHeader header;
  header.data_offset = 8 + *length;
  for (const auto& [name, entry] : parsed->items()) {
    if (name == "__metadata__") continue;
    auto info = parse_tensor(entry, file + ": tensor " + name.substr(0, 256));
    if (!info) return info.error();
    header.tensors.emplace(name, std::move(*info));
  }
  std::uint64_t data_bytes = 0;
  for (const auto& [name, info] : header.tensors)
    data_bytes = std::max(data_bytes, info.offset + info.bytes);
  header.alone = data_bytes > 0 && file_size == header.data_offset;
  if (!header.alone) data_bytes = file_size - header.data_offset;
  if (auto status = check_offsets(header, data_bytes, file); !status) return status.error();
  return header;
}

}  // namespace troupe
