#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/head/file_system.h"

namespace troupe::testing {

/// A file system in memory that keeps no more than it must: when the power goes, what was not
/// synced is there, or not, or in part; and what a sync that failed has not brought to the disk is
/// lost, whatever later ones say.
class ForgetfulFiles final : public FileSystem {
 public:
  /// Asked before each operation with its name ("append", "sync", ...) and its path; an error is
  /// what the operation ends with. It may block.
  std::function<Status(const std::string& operation, const std::string& path)> before;
  std::uint64_t operations = 0;  ///< so far
  /// Those that do nothing and say that all is well.
  std::function<bool(const std::string& operation, const std::string& path)> lies;

  /// What is there after the power went.
  std::unique_ptr<ForgetfulFiles> after_power_cut(std::uint64_t seed) const;
  std::map<std::string, std::string> contents() const;
  void put(const std::string& path, const std::string& bytes);
  std::string get(const std::string& path) const { return contents().at(path); }

  Status make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<std::unique_ptr<Writer>> create(const std::string& path) override;
  Result<std::unique_ptr<Reader>> open(const std::string& path) override;
  Status sync(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;

 private:
  struct Node {
    std::string bytes;
    std::size_t synced = 0;
    std::vector<std::pair<std::size_t, std::size_t>> lost;  ///< [begin, end), by failed syncs
  };
  struct Open;
  struct Read;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  Status sync(const std::string& path, Node& node);
  Status ask(const std::string& operation, const std::string& path);
  bool lie(const std::string& operation, const std::string& path) const {
    return lies && lies(operation, path);
  }
  static std::string left_of(const Node& node, std::mt19937_64& random);

  Names names_, kept_names_;
  std::set<std::string> folders_, kept_folders_;
};

}  // namespace troupe::testing
