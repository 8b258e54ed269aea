#include "tests/actors/head/forgetful_files.h"

#include <cstring>
#include <filesystem>

namespace troupe::testing {
namespace {

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}
Error no_such(const std::string& path) { return unavailable(path + " is not there."); }

}  // namespace

Status ForgetfulFiles::ask(const std::string& operation, const std::string& path) {
  ++operations;
  return before ? before(operation, path) : Status();
}

struct ForgetfulFiles::Open final : Writer {
  Open(ForgetfulFiles& files, std::string path, std::shared_ptr<Node> node)
      : files_(files), path_(std::move(path)), node_(std::move(node)) {}
  Status append(std::span<const std::byte> bytes) override {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const Status may = files_.ask("append", path_); !may.ok()) {
      node_->bytes += text.substr(0, text.size() / 2);
      return may;
    }
    node_->bytes += text;
    return {};
  }
  Status sync() override { return files_.sync(path_, *node_); }
  ForgetfulFiles& files_;
  const std::string path_;
  const std::shared_ptr<Node> node_;
};

struct ForgetfulFiles::Read final : Reader {
  Read(ForgetfulFiles& files, std::string path, std::string bytes)
      : files_(files), path_(std::move(path)), bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Status read(std::uint64_t at, std::span<std::byte> into) override {
    if (const Status may = files_.ask("read", path_); !may.ok()) return may;
    if (at + into.size() > bytes_.size()) return unavailable("There is not as much.");
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + at, into.size());
    return {};
  }
  ForgetfulFiles& files_;
  const std::string path_, bytes_;
};

std::string ForgetfulFiles::left_of(const Node& node, std::mt19937_64& random) {
  std::string bytes = node.bytes;
  for (const auto& [begin, end] : node.lost)
    for (std::size_t i = begin; i < end; ++i) bytes[i] = 0;
  const std::size_t more = bytes.size() - node.synced;
  const std::size_t whole = node.synced + random() % (more + 1);
  switch (random() % 4) {
    case 0:
      return bytes.substr(0, node.synced);
    case 1:
      return bytes;
    case 2:
      return bytes.substr(0, whole);
    default:  // the size came, and not all of what it counts
      return bytes.replace(whole, std::string::npos, bytes.size() - whole, '\0');
  }
}

std::unique_ptr<ForgetfulFiles> ForgetfulFiles::after_power_cut(std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  auto left = std::make_unique<ForgetfulFiles>();
  for (const std::string& folder : folders_)
    if (kept_folders_.contains(folder) || random() % 2 == 0) left->folders_.insert(folder);
  std::set<std::string> paths;
  for (const auto& [path, node] : names_) paths.insert(path);
  for (const auto& [path, node] : kept_names_) paths.insert(path);
  for (const std::string& path : paths) {
    const auto now = names_.find(path), kept = kept_names_.find(path);
    const std::shared_ptr<Node> is = now == names_.end() ? nullptr : now->second;
    const std::shared_ptr<Node> was = kept == kept_names_.end() ? nullptr : kept->second;
    const auto& node = is != was && random() % 2 == 0 ? was : is;
    if (node && left->folders_.contains(folder_of(path))) left->put(path, left_of(*node, random));
  }
  left->kept_folders_ = left->folders_;
  return left;
}

std::map<std::string, std::string> ForgetfulFiles::contents() const {
  std::map<std::string, std::string> contents;
  for (const auto& [path, node] : names_) contents[path] = node->bytes;
  return contents;
}

void ForgetfulFiles::put(const std::string& path, const std::string& bytes) {
  folders_.insert(folder_of(path));
  kept_folders_.insert(folder_of(path));
  names_[path] = kept_names_[path] = std::make_shared<Node>(Node{bytes, bytes.size(), {}});
}

Status ForgetfulFiles::make_folder(const std::string& path) {
  if (const Status may = ask("make_folder", path); !may.ok()) return may;
  folders_.insert(path);
  return {};
}

Status ForgetfulFiles::sync_folder(const std::string& path) {
  if (const Status may = ask("sync_folder", path); !may.ok() || lie("sync_folder", path))
    return may;
  for (const std::string& folder : folders_)
    if (folder_of(folder) == path) kept_folders_.insert(folder);
  std::erase_if(kept_names_, [&](const auto& name) { return folder_of(name.first) == path; });
  for (const auto& [name, node] : names_)
    if (folder_of(name) == path) kept_names_[name] = node;
  return {};
}

Result<std::vector<std::string>> ForgetfulFiles::list(const std::string& folder) {
  if (const Status may = ask("list", folder); !may.ok()) return may.error();
  std::vector<std::string> names;
  for (const auto& [path, node] : names_)
    if (folder_of(path) == folder) names.push_back(path.substr(folder.size() + 1));
  return names;
}

Result<std::unique_ptr<FileSystem::Writer>> ForgetfulFiles::create(const std::string& path) {
  if (const Status may = ask("create", path); !may.ok()) return may.error();
  if (names_.contains(path) || !folders_.contains(folder_of(path)))
    return unavailable(path + " cannot be made.");
  const auto node = names_[path] = std::make_shared<Node>();
  return std::unique_ptr<Writer>(std::make_unique<Open>(*this, path, node));
}

Result<std::unique_ptr<FileSystem::Reader>> ForgetfulFiles::open(const std::string& path) {
  if (const Status may = ask("open", path); !may.ok()) return may.error();
  const auto found = names_.find(path);
  if (found == names_.end()) return no_such(path);
  return std::unique_ptr<Reader>(std::make_unique<Read>(*this, path, found->second->bytes));
}

Status ForgetfulFiles::sync(const std::string& path) {
  const auto found = names_.find(path);
  if (found == names_.end()) return no_such(path);
  return sync(path, *found->second);
}

Status ForgetfulFiles::sync(const std::string& path, Node& node) {
  const Status may = ask("sync", path);
  if (lie("sync", path)) return may;
  if (!may.ok()) node.lost.emplace_back(node.synced, node.bytes.size());
  node.synced = node.bytes.size();  // from here on nothing is to be done
  return may;
}

Status ForgetfulFiles::rename(const std::string& from, const std::string& to) {
  if (const Status may = ask("rename", from); !may.ok()) return may;
  const auto found = names_.find(from);
  if (found == names_.end()) return no_such(from);
  names_[to] = found->second;
  names_.erase(from);
  return {};
}

Status ForgetfulFiles::remove(const std::string& path) {
  if (const Status may = ask("remove", path); !may.ok()) return may;
  names_.erase(path);
  return {};
}

}  // namespace troupe::testing
