#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace troupe::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A folder of its own for a test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-model-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// A copy of a checkpoint of one file, whose weights a test may spoil.
class ModelFolder : public TemporaryFolder {
 public:
  explicit ModelFolder(const std::string& model) {
    for (const auto& entry : std::filesystem::directory_iterator(model))
      std::filesystem::copy_file(entry.path(), *this / entry.path().filename().c_str());
    const std::string bytes = read_file(weights());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    header_ = nlohmann::json::parse(bytes.substr(8, length));
    data_ = 8 + length;
  }

  std::filesystem::path weights() const { return *this / "model.safetensors"; }
  /// Where a tensor begins in the file, and its bytes.
  std::uint64_t begin(const std::string& tensor) const {
    return data_ + header_.at(tensor).at("data_offsets").at(0).get<std::uint64_t>();
  }
  std::uint64_t bytes(const std::string& tensor) const {
    return data_ + header_.at(tensor).at("data_offsets").at(1).get<std::uint64_t>() - begin(tensor);
  }
  std::string stored(const std::string& tensor) const {
    return read_file(weights()).substr(begin(tensor), bytes(tensor));
  }
  /// In place, with the same layout.
  void overwrite(std::uint64_t at, const std::string& bytes) const {
    std::fstream file(weights(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << bytes;
  }

 private:
  nlohmann::json header_;
  std::uint64_t data_ = 0;
};

}  // namespace troupe::testing
