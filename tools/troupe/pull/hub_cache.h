#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/pull/repo_listing.h"

namespace troupe::pull {

/// A model's folder in the cache of Hugging Face's hub, which other programs read and write too:
///
///     CACHE/models--ORG--NAME/blobs/DIGEST            a whole file, whose checksum is its name
///     CACHE/models--ORG--NAME/refs/REVISION           the commit that it was when it was fetched
///     CACHE/models--ORG--NAME/snapshots/COMMIT/PATH   a link to the blob
///     CACHE/models--ORG--NAME/.troupe/                ours: the lock, and what is on its way
class HubFolder {
 public:
  HubFolder(const std::filesystem::path& cache, const std::string& name);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path blobs() const { return path_ / "blobs"; }
  std::filesystem::path parts() const { return own() / "parts"; }
  std::filesystem::path lock() const { return own() / "lock"; }
  std::filesystem::path snapshot(const std::string& commit) const;

  /// Makes what has to be there before a file comes.
  Status make() const;
  bool has_blob(const RepoFile& file) const;
  /// Links the files, whose blobs are here, into the commit's snapshot. One that is not there yet
  /// appears with all of them; else they are added, weights last.
  Status link(const std::string& commit, const std::vector<RepoFile>& files) const;
  Status point(const std::string& revision, const std::string& commit) const;
  /// The snapshot of a branch, a tag or a commit, if it is here: maybe not all of it.
  std::optional<std::filesystem::path> find(const std::string& revision) const;

 private:
  std::filesystem::path own() const { return path_ / ".troupe"; }
  Status link_into(const std::filesystem::path& folder, const std::vector<RepoFile>& files) const;

  std::filesystem::path path_;
};

/// Where models are kept if nothing else is said: $TROUPE_CACHE, else where the hub's own programs
/// keep them: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
/// ~/.cache/huggingface/hub.
std::filesystem::path default_cache();

/// The folder of a model of the hub that is in the default cache; anything else, also what is not
/// there, as it is.
std::string model_folder(const std::string& model);

}  // namespace troupe::pull
