#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/pull/repo_listing.h"

namespace troupe::pull {

/// A model's folder in the cache of Hugging Face's hub, which other programs read and write too:
///
///     CACHE/models--ORG--NAME/blobs/DIGEST            a whole file, whose checksum is its name
///     CACHE/models--ORG--NAME/refs/REVISION           the commit that it was when it was fetched
///     CACHE/models--ORG--NAME/snapshots/COMMIT/PATH   a link to the blob
///
/// Ours, which the others pass over:
///
///     CACHE/models--ORG--NAME/.troupe/                the lock, and what is on its way
///     CACHE/models--ORG--NAME/head/headers/DIGEST     the header alone of a safetensors file
///     CACHE/models--ORG--NAME/head/refs, /snapshots   as above, of links to blobs and headers
class HubFolder {
 public:
  enum class Part {
    kWhole,
    kHead,  ///< what a head needs: refs and snapshots are those in head/
  };
  HubFolder(const std::filesystem::path& cache, const std::string& name, Part part = Part::kWhole);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path blobs() const { return path_ / "blobs"; }
  std::filesystem::path parts() const { return own() / "parts"; }
  std::filesystem::path lock() const { return own() / "lock"; }
  std::filesystem::path snapshot(const std::string& commit) const;

  /// Makes what has to be there before a file comes.
  Status make() const;
  bool has(const RepoFile& file) const;
  /// Whether it is the header alone that is needed of the file.
  bool is_header(const RepoFile& file) const;
  Status keep_header(const RepoFile& file, std::string_view header) const;
  /// Links the files, which are here, into the commit's snapshot. One that is not there yet
  /// appears with all of them; else they are added, weights last.
  Status link(const std::string& commit, const std::vector<RepoFile>& files) const;
  Status point(const std::string& revision, const std::string& commit) const;
  /// The snapshot of a branch, a tag or a commit, if it is here: maybe not all of it.
  std::optional<std::filesystem::path> find(const std::string& revision) const;

 private:
  std::filesystem::path own() const { return path_ / ".troupe"; }
  std::filesystem::path part() const { return part_ == Part::kHead ? path_ / "head" : path_; }
  std::filesystem::path header(const RepoFile& file) const;
  bool has_blob(const RepoFile& file) const;
  /// As of the commit's snapshot, which `folder` is or becomes.
  Status link_into(const std::filesystem::path& folder, const std::string& commit,
                   const std::vector<RepoFile>& files) const;

  std::filesystem::path path_;
  Part part_;
};

/// Where models are kept if nothing else is said: $TROUPE_CACHE, else where the hub's own programs
/// keep them: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
/// ~/.cache/huggingface/hub.
std::filesystem::path default_cache();

/// The folder of a model of the hub that is in the default cache; anything else, also what is not
/// there, as it is.
std::string model_folder(const std::string& model, HubFolder::Part part = HubFolder::Part::kWhole);

}  // namespace troupe::pull
