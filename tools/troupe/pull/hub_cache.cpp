#include "tools/troupe/pull/hub_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <system_error>

#include "model/json_reader.h"
#include "model/model_path.h"
#include "runtime/limits.h"
#include "tools/troupe/pull/header.h"

namespace troupe::pull {
namespace {

namespace fs = std::filesystem;

bool is_weights(const RepoFile& file) {
  return file.path.ends_with(".safetensors") || file.path.ends_with(".gguf");
}

Error not_made(const fs::path& what, const std::error_code& why) {
  return unavailable(what.string() + " cannot be made: " + why.message() +
                     "; move away what is there, or choose another disk with --cache.");
}

/// The file appears at once, in the place of what was there.
Status write_whole(const fs::path& file, const fs::path& fresh, std::string_view bytes) {
  std::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  if (!failed) fs::remove(fresh, failed);
  // Not through a link that another writer of the cache may have put there.
  constexpr int kFresh = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = failed ? -1 : ::open(fresh.c_str(), kFresh, 0666);
  if (!failed && fd < 0) failed = {errno, std::generic_category()};
  while (!failed && !bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0)
      failed = {errno, std::generic_category()};
    else
      bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (fd >= 0 && ::close(fd) != 0 && !failed) failed = {errno, std::generic_category()};
  if (!failed) fs::rename(fresh, file, failed);
  return failed ? not_made("The file " + file.string(), failed) : Status();
}

/// What is not empty; a ~ in it, which the shell left, as the hub's own programs take it.
std::optional<fs::path> folder_of(const char* variable) {
  const char* said = std::getenv(variable);
  if (!said || !*said) return std::nullopt;
  const std::string text = said;
  const char* home = std::getenv("HOME");
  return home && text.starts_with("~/") ? fs::path(home + text.substr(1)) : fs::path(text);
}

}  // namespace

HubFolder::HubFolder(const fs::path& cache, const std::string& name, Part part) : part_(part) {
  std::string folder = "models--" + name;
  folder.replace(folder.find('/'), 1, "--");
  path_ = cache / folder;
}

fs::path HubFolder::snapshot(const std::string& commit) const {
  return part() / "snapshots" / commit;
}

/// A folder without `snapshots` is a broken one to the hub's own programs.
Status HubFolder::make() const {
  std::error_code failed;
  std::vector<fs::path> folders = {blobs(), path_ / "snapshots", parts(), part() / "snapshots",
                                   part() / "refs"};
  if (part_ == Part::kHead) folders.push_back(part() / "headers");
  for (const fs::path& folder : folders) {
    fs::create_directories(folder, failed);
    if (failed) return not_made("The folder " + folder.string(), failed);
  }
  return {};
}

/// Only whole files get their name there.
bool HubFolder::has_blob(const RepoFile& file) const {
  std::error_code failed;
  const fs::path blob = blobs() / file.digest;
  return fs::is_regular_file(blob, failed) && fs::file_size(blob, failed) == file.size && !failed;
}

bool HubFolder::is_header(const RepoFile& file) const {
  return part_ == Part::kHead && file.path.ends_with(".safetensors") && !has_blob(file);
}

fs::path HubFolder::header(const RepoFile& file) const {
  return part() / "headers" / file.digest;
}

bool HubFolder::has(const RepoFile& file) const {
  if (!is_header(file)) return has_blob(file);
  const auto kept = read_text_file(header(file), 8 + limits::kSafetensorsHeaderBytesMax);
  return kept.ok() && check_header(*kept, file).ok();
}

Status HubFolder::keep_header(const RepoFile& file, std::string_view bytes) const {
  return write_whole(header(file), own() / "header", bytes);
}

/// Each appears at once, in the place of one that leads elsewhere.
Status HubFolder::link_into(const fs::path& folder, const std::string& commit,
                            const std::vector<RepoFile>& files) const {
  std::error_code failed;
  const fs::path fresh = own() / "link";
  for (const RepoFile& file : files) {
    const fs::path target = is_header(file) ? header(file) : blobs() / file.digest;
    const fs::path link = folder / file.path, place = snapshot(commit) / file.path;
    if (fs::equivalent(link, target, failed)) continue;
    fs::create_directories(link.parent_path(), failed);
    if (!failed) fs::remove(fresh, failed);
    if (!failed) fs::create_symlink(target.lexically_relative(place.parent_path()), fresh, failed);
    if (!failed) fs::rename(fresh, link, failed);
    if (failed) return not_made("The link " + link.string(), failed);
    if (folder == snapshot(commit) && !fs::equivalent(link, target, failed))
      return unavailable("The link " + link.string() + " does not lead to " + target.string() +
                         ": a folder above it is a link itself; move that away, or choose another "
                         "cache with --cache.");
  }
  return {};
}

Status HubFolder::link(const std::string& commit, const std::vector<RepoFile>& files) const {
  std::error_code failed;
  if (!fs::exists(snapshot(commit), failed)) {
    const fs::path fresh = own() / commit;
    fs::remove_all(fresh, failed);
    if (const Status linked = link_into(fresh, commit, files); !linked.ok()) return linked;
    fs::rename(fresh, snapshot(commit), failed);  // or another program has made it meanwhile
    fs::remove_all(fresh, failed);
  }
  std::vector<RepoFile> ordered = files;
  std::ranges::stable_partition(ordered, [](const RepoFile& file) { return !is_weights(file); });
  return link_into(snapshot(commit), commit, ordered);
}

Status HubFolder::point(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return {};
  return write_whole(part() / "refs" / revision, own() / "ref", commit);
}

std::optional<fs::path> HubFolder::find(const std::string& revision) const {
  std::string commit = revision;
  std::error_code failed;
  // Nothing but a file: another thing may hold who opens it for ever.
  const fs::path ref = part() / "refs" / revision;
  if (!is_commit(revision) && fs::is_regular_file(ref, failed))
    std::ifstream(ref) >> std::setw(64) >> commit;
  if (!is_commit(commit) || !fs::is_directory(snapshot(commit), failed)) return std::nullopt;
  return snapshot(commit);
}

fs::path default_cache() {
  if (const auto cache = folder_of("TROUPE_CACHE")) return *cache;
  if (const auto cache = folder_of("HF_HUB_CACHE")) return *cache;
  if (const auto home = folder_of("HF_HOME")) return *home / "hub";
  if (const auto caches = folder_of("XDG_CACHE_HOME")) return *caches / "huggingface" / "hub";
  return folder_of("HOME").value_or(".") / ".cache" / "huggingface" / "hub";
}

std::string model_folder(const std::string& model, HubFolder::Part part) {
  std::error_code failed;
  const auto named = parse_hub_model(model);
  if (!named || fs::exists(model, failed)) return model;
  const auto found = HubFolder(default_cache(), named->name, part).find(named->revision);
  return found ? found->string() : model;
}

}  // namespace troupe::pull
