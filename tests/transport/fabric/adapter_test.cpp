#include "transport/fabric/adapter.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "transport/fabric/provider.h"

namespace troupe::transport::testing {
namespace {

namespace fs = std::filesystem;

/// What a kernel tells of a machine, as files; a value that begins with "->" is a link.
class Told {
 public:
  explicit Told(const std::map<std::string, std::string>& files)
      : folder_(fs::temp_directory_path() / ("adapter-" + std::to_string(getpid()))) {
    for (const auto& [name, text] : files) {
      const fs::path file = folder_ / name;
      fs::create_directories(file.parent_path());
      if (text.starts_with("->")) {
        fs::create_directories(folder_ / text.substr(2));
        fs::create_symlink(folder_ / text.substr(2), file);
      } else {
        std::ofstream(file) << text << '\n';
      }
    }
  }
  ~Told() { fs::remove_all(folder_); }
  std::string interfaces() const { return folder_ / "net"; }

 private:
  fs::path folder_;
};

struct Row {
  const char* what;
  std::map<std::string, std::string> files;
  FabricAdapter adapter;
};

const std::string kPci = "pci0000:16/0000:17:00.0";
const std::string kHca = kPci + "/infiniband/mlx5_0";

const Row kRows[] = {
    {"an HCA whose interface knows its speed",
     {{"net/eth0/device", "->" + kPci},
      {"net/eth0/speed", "400000"},
      {"net/eth0/mtu", "9000"},
      {"net/eth0/operstate", "up"},
      {"net/eth0/dev_port", "0"},
      {kPci + "/vendor", "0x15b3"},
      {kPci + "/device", "0x1021"},
      {kPci + "/driver", "->drivers/mlx5_core"},
      {kHca + "/fw_ver", "28.39.1002"},
      {kHca + "/ports/1/link_layer", "Ethernet"},
      {kHca + "/ports/1/rate", "100 Gb/sec (4X EDR)"}},
     {"mlx5_0", "0000:17:00.0", "0x15b3", "0x1021", "mlx5_core", "28.39.1002", "Ethernet", "up",
      400'000'000'000, 9000}},
    {"one whose HCA knows it, at the second port",
     {{"net/eth0/device", "->" + kPci},
      {"net/eth0/speed", "-1"},
      {"net/eth0/operstate", "unknown"},
      {"net/eth0/dev_port", "1"},
      {kPci + "/infiniband/mlx5_1/fw_ver", "2"},
      {kHca + "/fw_ver", "1"},
      {kHca + "/ports/1/rate", "2.5 Gb/sec (1X SDR)"},
      {kHca + "/ports/2/rate", "12.5 Gb/sec"},
      {kHca + "/ports/2/link_layer", "InfiniBand"}},
     {"mlx5_0", "0000:17:00.0", "", "", "", "1", "InfiniBand", "", 12'500'000'000, 0}},
    {"a virtual card on a PCI function",
     {{"net/eth0/device", "->" + kPci + "/virtio2"},
      {"net/eth0/speed", "unreadable"},
      {"net/eth0/operstate", "down"},
      {kPci + "/vendor", "0x1af4"},
      {kPci + "/virtio2/vendor", "0x9999"},
      {kPci + "/virtio2/driver", "->drivers/virtio_net"}},
     {"", "0000:17:00.0", "0x1af4", "", "virtio_net", "", "", "down", 0, 0}},
    {"no PCI, and odd words",
     {{"net/eth0/device", "->usb/1-1:1.0"},
      {"net/eth0/speed", "99999999999999999999"},
      {"net/eth0/mtu", "-7"},
      {"usb/1-1:1.0/driver", "->drivers/\xff\x1b[31m"}},
     {"", "", "", "", "\xff\x1b[31m", "", "", "", 0, 0}},
    {"nothing behind it", {{"net/eth0/speed", "10000"}, {"net/eth0/operstate", "up"}}, {}},
    {"another interface", {{"net/eth1/device", "->" + kPci}}, {}},
};

TEST_CASE("what the kernel says of the device behind an interface") {
  for (const Row& row : kRows) {
    CAPTURE(row.what);
    const Told told(row.files);
    const FabricAdapter adapter = adapter_behind(told.interfaces(), "eth0");
    CHECK(adapter.name == row.adapter.name);
    CHECK(adapter.pci_address == row.adapter.pci_address);
    CHECK(adapter.driver == row.adapter.driver);
    CHECK(adapter.bits_per_s == row.adapter.bits_per_s);
    CHECK((adapter == row.adapter));
  }
  CHECK((adapter_behind("/nowhere", "eth0") == FabricAdapter{}));
  CHECK((adapter_behind("/", "") == FabricAdapter{}));
}

TEST_CASE("what libfabric says goes before what the kernel says") {
  char name[] = "mlx5_2", vendor[] = "0x02c9", network[] = "InfiniBand";
  fi_device_attr device{};
  device.name = name;
  device.vendor_id = vendor;
  fi_bus_attr bus{};
  fi_link_attr link{};
  link.speed = 200'000'000'000;
  link.mtu = 4096;
  link.state = FI_LINK_UP;
  link.network_type = network;
  fid_nic nic{};
  CHECK((adapter_of(nullptr) == FabricAdapter{}));
  CHECK((adapter_of(&nic) == FabricAdapter{}));
  nic.device_attr = &device;
  nic.bus_attr = &bus;
  nic.link_attr = &link;
  const FabricAdapter told{"mlx5_2",     "",   "0x02c9",        "",  "", "",
                           "InfiniBand", "up", 200'000'000'000, 4096};
  CHECK((adapter_of(&nic) == told));
  const FabricAdapter kernel = kRows[0].adapter;
  CHECK((completed(told, kernel) == FabricAdapter{"mlx5_2", "0000:17:00.0", "0x02c9", "0x1021",
                                                  "mlx5_core", "28.39.1002", "InfiniBand", "up",
                                                  200'000'000'000, 4096}));
  CHECK((completed({}, kernel) == kernel));
  CHECK(completed({}, {.driver = "\xff\x1b[31m"}).driver == "??[31m");
  CHECK(completed({.name = std::string(5000, 'x')}, {}).name.size() == 64);
  bus.bus_type = FI_BUS_PCI;
  bus.attr.pci = {1, 0xe1, 0x0a, 3};
  CHECK(adapter_of(&nic).pci_address == "0001:e1:0a.3");
}

}  // namespace
}  // namespace troupe::transport::testing
