#include "tools/troupe/pull/pull.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/log.h"
#include "tools/troupe/pull/download.h"
#include "tools/troupe/pull/header.h"
#include "tools/troupe/pull/hub_cache.h"
#include "tools/troupe/pull/limits.h"
#include "tools/troupe/pull/repo_listing.h"

namespace troupe::pull {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOtherWeights[] = {".bin",  ".gguf", ".h5", ".msgpack",
                                         ".onnx", ".pt",   ".pth"};

struct Repository {
  std::string commit;
  std::vector<RepoFile> files;
  std::size_t endpoint = 0;  ///< which one told it
};

Result<std::vector<RepoFile>> list_files(HubConnection& hub, const std::string& target) {
  std::vector<RepoFile> files;
  std::string page = target;
  for (std::size_t pages = 0; !page.empty(); ++pages) {
    if (pages == kPagesMax) return corrupt("has no end");
    const auto answer = hub.get(page);
    if (!answer.ok()) return answer.error();
    auto more = parse_listing(answer->body);
    if (!more.ok()) return more.error();
    files.insert(files.end(), more->begin(), more->end());
    if (files.size() > kFilesMax) return corrupt("names too many files");
    page = next_page(answer->head.link);
  }
  std::uint64_t bytes = 0;
  std::set<std::string_view> paths;
  std::map<std::string_view, std::uint64_t> sizes;
  for (const RepoFile& file : files) {
    if (!paths.insert(file.path).second) return corrupt("names the file " + file.path + " twice");
    if (sizes.try_emplace(file.digest, file.size).first->second != file.size)
      return corrupt("names two sizes for the checksum of the file " + file.path);
    if ((bytes += file.size) > kRepositoryBytesMax) return corrupt("names too many bytes");
  }
  return files;
}

/// A revision is one part of an address, though it may hold slashes.
std::string url_part(const std::string& revision) {
  std::string text;
  for (const char c : url_path(revision)) text += c == '/' ? std::string("%2F") : std::string(1, c);
  return text;
}

/// What the first endpoint that can tell says there is; every sum that is checked comes from it.
Result<Repository> look_up(const PullOptions& options) {
  auto connections = connect_all(options);
  std::optional<Error> last;
  for (std::size_t i = 0; i < connections.size(); ++i) {
    const std::string api = "/api/models/" + options.name;
    const std::string where = options.endpoints[i].text();
    const auto broken = [&](const Error& error) {
      return corrupt("The listing of " + options.name + " from " + where + " " + error.message +
                     ".");
    };
    if (last) logger().warn("{} The next endpoint is asked.", last->message);
    const auto answer = connections[i]->get(api + "/revision/" + url_part(options.revision));
    if (!answer.ok()) {
      last = answer.error();
      continue;
    }
    auto commit = parse_commit(answer->body);
    if (!commit.ok()) {
      last = broken(commit.error());
      continue;
    }
    if (is_commit(options.revision) && *commit != options.revision) {
      last = corrupt(where + " names another commit than " + options.revision + ".");
      continue;
    }
    auto files = list_files(*connections[i], api + "/tree/" + *commit + "?recursive=1");
    if (files.ok()) return Repository{std::move(*commit), std::move(*files), i};
    const bool own = files.error().message.ends_with('.');
    last = own ? files.error() : broken(files.error());
  }
  return *last;
}

/// Files are asked for first where the listing came from: those before it did not answer.
PullOptions starting_at(PullOptions options, std::size_t endpoint) {
  if (endpoint > 0) options.token.clear();  // it was the first one's
  std::rotate(options.endpoints.begin(),
              options.endpoints.begin() + static_cast<std::ptrdiff_t>(endpoint),
              options.endpoints.end());
  return options;
}

/// One pull of a model at a time; it goes with the process.
class PullLock {
 public:
  explicit PullLock(const HubFolder& folder)
      : folder_(folder.path()),
        fd_(::open(folder.lock().c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)),
        unopened_(fd_ < 0 ? errno : 0) {}
  ~PullLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  Status take(const std::string& name) const {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (fd_ >= 0 && ::fcntl(fd_, F_SETLK, &whole) == 0) return {};
    const int why = fd_ >= 0 ? errno : unopened_;
    if (fd_ >= 0 && (why == EACCES || why == EAGAIN))
      return unavailable("Another `troupe pull` of " + name + " is at work in " + folder_.string() +
                         "; wait for it.");
    return unavailable("The folder " + folder_.string() + " cannot be written (" +
                       std::strerror(why) + "); choose another with --cache.");
  }

 private:
  const fs::path folder_;
  const int fd_;
  const int unopened_;  // why
};

Status check_room(const fs::path& cache, const std::vector<RepoFile>& missing,
                  const fs::path& parts) {
  std::uint64_t needed = 0, begun = 0;
  for (const RepoFile& file : missing) needed += file.size;
  struct statvfs disk {};
  if (::statvfs(cache.c_str(), &disk) != 0) return {};
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(parts, failed)) {
    struct stat info {};
    if (::stat(entry.path().c_str(), &info) == 0)
      begun += static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (needed <= free + begun) return {};
  return resource_exhausted("The model needs " + std::to_string(needed) + " bytes in " +
                            cache.string() + ", where " + std::to_string(free) +
                            " are free; make room, or choose another disk with --cache.");
}

/// What is asked for. A head gets no weights, of whatever format.
Result<std::vector<RepoFile>> choose(std::vector<RepoFile> files, const PullOptions& options) {
  std::erase_if(files, [&](const RepoFile& file) {
    return !is_wanted(file.path, options.include, options.exclude);
  });
  if (files.empty())
    return not_found(options.name + " has no file that --include and --exclude leave.");
  if (!options.for_head) return files;
  std::erase_if(files, [](const RepoFile& file) {
    return std::ranges::any_of(kOtherWeights,
                               [&](const char* end) { return file.path.ends_with(end); });
  });
  const bool any = std::ranges::any_of(
      files, [](const RepoFile& file) { return file.path.ends_with(".safetensors"); });
  if (any) return files;
  return not_found(options.name +
                   " has no *.safetensors file, of which a head can do with the header; pull it "
                   "without --for head.");
}

Status keep_headers(const std::vector<RepoFile>& files, const PullOptions& options,
                    Mirrors& mirrors, const HubFolder& folder, PullProgress& progress) {
  Connections connections = connect_all(options);
  for (const RepoFile& file : files) {
    const auto header = fetch_header(file, mirrors, connections);
    if (!header.ok()) return header.error();
    if (const Status kept = folder.keep_header(file, *header); !kept.ok()) return kept;
    ++progress.files;
  }
  return {};
}

}  // namespace

Result<fs::path> pull(const PullOptions& options, PullProgress& progress) {
  auto repository = look_up(options);
  if (!repository.ok()) return repository.error();
  const auto files = choose(std::move(repository->files), options);
  if (!files.ok()) return files.error();

  const HubFolder folder(options.cache, options.name,
                         options.for_head ? HubFolder::Part::kHead : HubFolder::Part::kWhole);
  if (const Status made = folder.make(); !made.ok()) return made.error();
  const PullLock lock(folder);
  if (const Status taken = lock.take(options.name); !taken.ok()) return taken.error();
  std::vector<RepoFile> missing, headers;
  std::set<std::string_view> digests;
  for (const RepoFile& file : *files) {
    if (!digests.insert(file.digest).second) continue;
    const bool is_header = folder.is_header(file), is_here = folder.has(file);
    const std::uint64_t bytes = is_header ? 0 : file.size;
    ++progress.files_total;
    progress.bytes_total += bytes;
    if (is_here) {
      ++progress.files;
      progress.bytes += bytes;
    } else {
      (is_header ? headers : missing).push_back(file);
    }
  }
  if (const Status room = check_room(options.cache, missing, folder.parts()); !room.ok())
    return room.error();
  const PullOptions from = starting_at(options, repository->endpoint);
  Mirrors mirrors(from, repository->commit);
  Download download(from, mirrors, std::move(missing), folder, progress);
  if (const Status done = download.run(); !done.ok()) return done.error();
  if (const Status kept = keep_headers(headers, from, mirrors, folder, progress); !kept.ok())
    return kept.error();
  if (const Status linked = folder.link(repository->commit, *files); !linked.ok())
    return linked.error();
  if (const Status pointed = folder.point(options.revision, repository->commit); !pointed.ok())
    return pointed.error();
  return folder.snapshot(repository->commit);
}

}  // namespace troupe::pull
