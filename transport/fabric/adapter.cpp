#include "transport/fabric/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

namespace troupe::transport {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWordBytesMax = 64;
/// No link is that fast: what says more is not believed.
constexpr double kBitsPerSecondMax = 1e15;

std::string word(std::string text) {
  text.resize(std::min(text.size(), kWordBytesMax));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

std::string line_in(const fs::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

/// 0 if there is none above it: the kernel says -1 for what it does not know.
double number_in(const fs::path& file) {
  double value = 0;
  std::ifstream(file) >> value;
  return std::isfinite(value) && value > 0 ? value : 0;
}

std::uint64_t bits(double per_second) {
  return per_second > 0 && per_second < kBitsPerSecondMax
             ? static_cast<std::uint64_t>(std::llround(per_second))
             : 0;
}

bool is_pci_address(const std::string& name) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int length = 0;
  return std::sscanf(name.c_str(), "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &length) ==
             4 &&
         static_cast<std::size_t>(length) == name.size();
}

/// The device itself, or the one that it lies on: a virtual card's is a step or two up.
std::optional<fs::path> pci_function(fs::path device) {
  for (; device.has_relative_path(); device = device.parent_path())
    if (is_pci_address(device.filename().string())) return device;
  return std::nullopt;
}

/// Of the device's HCAs, of which there is seldom more than one, the first by name.
std::optional<fs::path> hca_of(const fs::path& device) {
  std::optional<fs::path> first;
  std::error_code failed;
  for (fs::directory_iterator i(device / "infiniband", failed), end; !failed && i != end;
       i.increment(failed))
    if (!first || i->path() < *first) first = i->path();
  return first;
}

/// The HCA's name, its firmware, and the port that the interface has.
void add_hca(const fs::path& hca, const fs::path& interface, FabricAdapter& adapter) {
  adapter.name = hca.filename();
  adapter.firmware = line_in(hca / "fw_ver");
  const auto number = static_cast<std::uint32_t>(std::min(number_in(interface / "dev_port"), 255.));
  const fs::path port = hca / "ports" / std::to_string(number + 1);
  adapter.network = line_in(port / "link_layer");
  // "400 Gb/sec (4X NDR)"
  if (adapter.bits_per_s == 0) adapter.bits_per_s = bits(number_in(port / "rate") * 1e9);
}

}  // namespace

FabricAdapter adapter_behind(const std::string& folder, const std::string& interface) {
  FabricAdapter adapter;
  const fs::path of = fs::path(folder) / interface;
  std::error_code failed;
  const fs::path device = fs::canonical(of / "device", failed);
  if (interface.empty() || failed) return adapter;
  if (const auto pci = pci_function(device)) {
    adapter.pci_address = pci->filename();
    adapter.vendor_id = line_in(*pci / "vendor");
    adapter.device_id = line_in(*pci / "device");
  }
  if (const fs::path driver = fs::canonical(device / "driver", failed); !failed)
    adapter.driver = driver.filename();
  adapter.bits_per_s = bits(number_in(of / "speed") * 1e6);
  adapter.mtu = static_cast<std::uint32_t>(std::min(number_in(of / "mtu"), 1e9));
  if (const std::string state = line_in(of / "operstate"); state == "up" || state == "down")
    adapter.state = state;
  if (const auto hca = hca_of(device)) add_hca(*hca, of, adapter);
  return adapter;
}

FabricAdapter completed(FabricAdapter known, const FabricAdapter& other) {
  for (const auto field :
       {&FabricAdapter::name, &FabricAdapter::pci_address, &FabricAdapter::vendor_id,
        &FabricAdapter::device_id, &FabricAdapter::driver, &FabricAdapter::firmware,
        &FabricAdapter::network, &FabricAdapter::state})
    known.*field = word((known.*field).empty() ? other.*field : known.*field);
  if (known.bits_per_s == 0) known.bits_per_s = other.bits_per_s;
  if (known.mtu == 0) known.mtu = other.mtu;
  return known;
}

}  // namespace troupe::transport
