#include "tools/troupe/device_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace troupe::cli {
namespace {

constexpr std::array<std::pair<std::string_view, DeviceList::Kind>, 4> kKinds = {{
    {"auto", DeviceList::Kind::kAuto},
    {"cpu", DeviceList::Kind::kCpu},
    {"cuda", DeviceList::Kind::kCuda},
    {"cuda-twin", DeviceList::Kind::kCudaTwin},
}};

/// No machine has more of them.
constexpr int kNumbersMax = 1024;

Error not_a_list(const std::string& text) {
  return invalid_argument(
      "--device must be auto, cpu or cuda, or name some as cpu:0,1 (NUMA nodes) and cuda:0,1 "
      "(GPUs), not '" +
      text + "'.");
}

}  // namespace

Result<DeviceList> parse_device_list(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto kind = std::ranges::find(kKinds, std::string_view(text).substr(0, colon),
                                      &std::pair<std::string_view, DeviceList::Kind>::first);
  if (kind == kKinds.end()) return not_a_list(text);
  DeviceList list{kind->second, {}};
  if (colon == text.size()) return list;
  if (list.kind == DeviceList::Kind::kAuto) return not_a_list(text);
  for (std::size_t at = colon; at < text.size();) {
    const std::size_t begin = at + 1;
    at = std::min(text.find(',', begin), text.size());
    int number = -1;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + at, number);
    if (error != std::errc() || end != text.data() + at || number < 0 || number >= kNumbersMax)
      return not_a_list(text);
    if (std::ranges::count(list.numbers, number) > 0)
      return invalid_argument("--device " + text + " names " + std::to_string(number) + " twice.");
    list.numbers.push_back(number);
  }
  return list;
}

std::string to_string(const DeviceList& list) {
  std::string text(
      std::ranges::find(kKinds, list.kind, &decltype(kKinds)::value_type::second)->first);
  for (const int number : list.numbers) {
    text += number == list.numbers.front() ? ':' : ',';
    text += std::to_string(number);
  }
  return text;
}

Result<DeviceList> share_of(const DeviceList& list, std::size_t worker, std::size_t workers) {
  DeviceList share{list.kind, {}};
  if (list.numbers.empty()) return share;
  if (list.numbers.size() < workers)
    return invalid_argument("--device " + to_string(list) + " is of " +
                            std::to_string(list.numbers.size()) + ", but there are " +
                            std::to_string(workers) + " workers; give --workers " +
                            std::to_string(list.numbers.size()) + ".");
  for (std::size_t i = worker; i < list.numbers.size(); i += workers)
    share.numbers.push_back(list.numbers[i]);
  return share;
}

}  // namespace troupe::cli
