#include "runtime/host.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <fstream>
#include <memory>

namespace troupe {

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t begin = line.find_first_not_of(": \t", std::min(line.find(':'), line.size()));
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::uint64_t host_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
             : 0;
}

std::vector<int> allowed_processors() {
  // What the C library wraps gives up on machines of more than 1024.
  constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kProcessorsMax / kWordBits> set{};
  std::vector<int> processors;
  if (syscall(SYS_sched_getaffinity, 0, sizeof set, set.data()) < 0) return processors;
  for (int p = 0; p < kProcessorsMax; ++p)
    if (set[static_cast<std::size_t>(p / kWordBits)] >> (p % kWordBits) & 1)
      processors.push_back(p);
  return processors;
}

int host_processors() { return std::max(1, static_cast<int>(allowed_processors().size())); }

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  const std::string loopback = "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return loopback;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return loopback;
  sockaddr_storage self{};
  socklen_t size = sizeof self;
  char text[NI_MAXHOST] = {};
  // Connecting a datagram socket chooses the route and nothing else.
  const bool known = connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&self), &size) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&self), size, text, sizeof text,
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  close(fd);
  return known ? text : loopback;
}

}  // namespace troupe
