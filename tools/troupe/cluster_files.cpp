#include "tools/troupe/cluster_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "actors/supervisor/options.h"
#include "runtime/host.h"
#include "runtime/log.h"

namespace troupe::cli {
namespace {

std::string read_word(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

/// In one piece: a crash leaves the old file or the new one.
Status write_word(const std::string& path, const std::string& word) {
  const std::string next = path + ".new";
  {
    std::ofstream out(next, std::ios::trunc);
    out << word << '\n';
    if (!out.flush()) return unavailable("The file " + next + " cannot be written.");
  }
  std::error_code error;
  std::filesystem::rename(next, path, error);
  if (error)
    return unavailable("The file " + path + " cannot be written: " + error.message() + ".");
  return {};
}

bool is_id(const std::string& text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_';
  });
}

std::string random_id() {
  unsigned char bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) std::memset(bytes, 0, sizeof bytes);
  std::string id;
  for (const unsigned char b : bytes) {
    id += "0123456789abcdef"[b >> 4];
    id += "0123456789abcdef"[b & 15];
  }
  return id;
}

}  // namespace

Result<ClusterFiles> ClusterFiles::open(const std::string& state_dir) {
  ClusterFiles files;
  files.state_dir_ = state_dir;
  auto credentials = load_or_create(state_dir);
  if (!credentials.ok()) return credentials.error();
  files.credentials = std::move(*credentials);

  const std::string lock_path = state_dir + "/lock";
  files.lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (files.lock_ < 0 || flock(files.lock_, LOCK_EX | LOCK_NB) != 0)
    return unavailable("Another head uses the state folder " + state_dir +
                       "; stop it with `troupe stop`, or choose another with --state-dir.");

  const std::string id_path = state_dir + "/cluster-id";
  files.cluster_id = read_word(id_path);
  if (files.cluster_id.empty()) {
    files.cluster_id = random_id();
    if (const Status written = write_word(id_path, files.cluster_id); !written.ok())
      return written.error();
  }
  if (!is_id(files.cluster_id))
    return corrupt("The file " + id_path +
                   " does not hold a cluster's id; delete it, and a new one is made.");
  const std::string life_path = state_dir + "/incarnation";
  const std::string kept = read_word(life_path);
  const std::uint64_t before = kept.empty() ? 0 : std::strtoull(kept.c_str(), nullptr, 10);
  const auto unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  files.incarnation = Incarnation{first_incarnation(before, unix_us)};
  if (const Status written = write_word(life_path, std::to_string(files.incarnation.value));
      !written.ok())
    return written.error();
  const std::string next = read_word(state_dir + "/next-node");
  if (!next.empty())
    files.next_node = std::max<std::uint32_t>(
        1, static_cast<std::uint32_t>(std::strtoul(next.c_str(), nullptr, 10)));
  return files;
}

void ClusterFiles::keep_next_node(std::uint32_t id) const {
  const Status written = write_word(state_dir_ + "/next-node", std::to_string(id));
  if (!written.ok()) spdlog::error("{}", written.error().message);
}

ClusterFiles::ClusterFiles(ClusterFiles&& other) noexcept
    : credentials(std::move(other.credentials)),
      cluster_id(std::move(other.cluster_id)),
      incarnation(other.incarnation),
      next_node(other.next_node),
      state_dir_(std::move(other.state_dir_)),
      lock_(std::exchange(other.lock_, -1)) {}

ClusterFiles::~ClusterFiles() {
  if (lock_ >= 0) ::close(lock_);
}

std::string ClusterFiles::join_path() const { return state_dir_ + "/join"; }

Status ClusterFiles::write_join(const HostPort& listening) const {
  JoinFile join;
  const bool everywhere =
      listening.host == "0.0.0.0" || listening.host == "::" || listening.host.empty();
  if (everywhere) {
    join.heads.push_back(to_string({host_name(), listening.port}));
    join.heads.push_back(to_string({"127.0.0.1", listening.port}));
  } else {
    join.heads.push_back(to_string(listening));
  }
  join.worker = credentials.worker;
  return write_join_file(join_path(), join);
}

Result<std::string> find_join_file(const std::string& state_dir) {
  const std::string path = state_dir + "/join";
  if (std::filesystem::exists(path)) return path;
  return not_found(
      "No cluster was started with the state folder " + state_dir +
      "; start one with `troupe up`, or say where it keeps its state with --state-dir.");
}

}  // namespace troupe::cli
