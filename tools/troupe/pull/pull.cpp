#include "tools/troupe/pull/pull.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "model/model_path.h"
#include "runtime/log.h"
#include "tools/troupe/pull/download.h"
#include "tools/troupe/pull/limits.h"
#include "tools/troupe/pull/repo_listing.h"

namespace troupe::pull {
namespace {

namespace fs = std::filesystem;

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
  for (const RepoFile& file : files) {
    if (!paths.insert(file.path).second) return corrupt("names the file " + file.path + " twice");
    if ((bytes += file.size) > kRepositoryBytesMax) return corrupt("names too many bytes");
  }
  return files;
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
    const auto answer = connections[i]->get(api + "/revision/" + url_path(options.revision));
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
  explicit PullLock(const fs::path& home)
      : home_(home),
        fd_(::open((home / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)),
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
      return unavailable("Another `troupe pull` of " + name + " is at work in " + home_.string() +
                         "; wait for it.");
    return unavailable("The folder " + home_.string() + " cannot be written (" +
                       std::strerror(why) + "); choose another with --cache.");
  }

 private:
  const fs::path home_;
  const int fd_;
  const int unopened_;  // why
};

bool is_here(const fs::path& folder, const RepoFile& file) {
  std::error_code failed;
  const fs::path path = folder / file.path;
  return fs::is_regular_file(fs::symlink_status(path, failed)) &&
         fs::file_size(path, failed) == file.size && !failed;
}

/// Files of an earlier pull of the same commit, which asked for others, are taken over.
void take_over(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  for (const auto& entry : fs::recursive_directory_iterator(from, failed)) {
    if (!entry.is_regular_file(failed)) continue;
    const fs::path there = to / entry.path().lexically_relative(from);
    fs::create_directories(there.parent_path(), failed);
    fs::create_hard_link(entry.path(), there, failed);  // or it is there, or comes again
  }
}

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

/// NFS has no such rename: there `to` is gone for a moment, and what it was stays until the end.
int swap_folders(const fs::path& whole, const fs::path& to) {
  const int done = ::renameat2(AT_FDCWD, whole.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE);
  if (done == 0 || (errno != EINVAL && errno != ENOSYS)) return done;
  const fs::path aside = whole.parent_path() / "replaced";
  if (::rename(to.c_str(), aside.c_str()) != 0) return -1;
  return ::rename(whole.c_str(), to.c_str());
}

/// The whole folder appears at once, also in the place of one that lacked something.
Status publish(const fs::path& partial, const fs::path& to) {
  const fs::path whole = partial / "files";
  const bool replaces = fs::exists(to);
  if ((replaces ? swap_folders(whole, to) : ::rename(whole.c_str(), to.c_str())) != 0)
    return unavailable("The folder " + to.string() + " cannot be made: " + std::strerror(errno) +
                       ".");
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  return {};
}

/// The link, replaced at once.
Status point(const fs::path& link, const fs::path& to) {
  std::error_code failed;
  const fs::path fresh = to.string() + ".link";
  fs::remove(fresh, failed);
  fs::create_directory_symlink(to.lexically_relative(link.parent_path()), fresh, failed);
  if (!failed) fs::rename(fresh, link, failed);
  if (!failed) return {};
  return unavailable("The model is in " + to.string() + ", but the link " + link.string() +
                     " to it cannot be made: " + failed.message() + "; move away what is there.");
}

}  // namespace

fs::path default_cache() {
  if (const char* cache = std::getenv("TROUPE_CACHE"); cache && *cache) return cache;
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : ".") / ".cache" / "troupe";
}

std::string model_folder(const std::string& model) {
  std::error_code failed;
  const auto named = parse_hub_model(model);
  if (!named || fs::exists(model, failed)) return model;
  const fs::path folder = pulled_folder(default_cache(), named->name, named->revision);
  return fs::is_directory(folder, failed) ? folder.string() : model;
}

fs::path pulled_folder(const fs::path& cache, const std::string& name,
                       const std::string& revision) {
  if (revision == "main") return cache / name;
  std::string suffix = revision;
  std::ranges::replace(suffix, '/', '-');
  return cache / (name + "@" + suffix);
}

Result<fs::path> pull(const PullOptions& options, PullProgress& progress) {
  auto repository = look_up(options);
  if (!repository.ok()) return repository.error();
  std::vector<RepoFile> files;
  for (RepoFile& file : repository->files)
    if (is_wanted(file.path, options.include, options.exclude)) files.push_back(std::move(file));
  if (files.empty())
    return not_found(options.name + " has no file that --include and --exclude leave.");

  const fs::path link = pulled_folder(options.cache, options.name, options.revision);
  const fs::path home =
      link.parent_path() / ".commits" / options.name.substr(options.name.find('/') + 1);
  const fs::path folder = home / repository->commit;
  const fs::path partial = folder.string() + ".partial";
  std::error_code failed;
  fs::create_directories(home, failed);
  if (failed)
    return unavailable("The folder " + home.string() + " cannot be made: " + failed.message() +
                       "; choose another with --cache.");
  const PullLock lock(home);
  if (const Status taken = lock.take(options.name); !taken.ok()) return taken.error();
  progress.files_total = files.size();
  for (const RepoFile& file : files) progress.bytes_total += file.size;
  const auto all_here = [&](const fs::path& place) {
    return std::ranges::all_of(files, [&](const RepoFile& f) { return is_here(place, f); });
  };
  if (!all_here(folder)) {
    fs::create_directories(partial / "files", failed);
    fs::create_directories(partial / "parts", failed);
    if (failed)
      return unavailable("The folder " + partial.string() + " cannot be made: " + failed.message() +
                         ".");
    take_over(folder, partial / "files");
    std::vector<RepoFile> missing;
    for (const RepoFile& file : files) {
      if (!is_here(partial / "files", file)) {
        missing.push_back(file);
        continue;
      }
      ++progress.files;
      progress.bytes += file.size;
    }
    if (const Status room = check_room(options.cache, missing, partial / "parts"); !room.ok())
      return room.error();
    Download download(starting_at(options, repository->endpoint), repository->commit,
                      std::move(missing), partial, progress);
    if (const Status done = download.run(); !done.ok()) return done.error();
    if (const Status published = publish(partial, folder); !published.ok())
      return published.error();
  }
  if (const Status pointed = point(link, folder); !pointed.ok()) return pointed.error();
  return link;
}

}  // namespace troupe::pull
