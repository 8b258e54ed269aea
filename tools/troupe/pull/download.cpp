#include "tools/troupe/pull/download.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "runtime/log.h"
#include "tools/troupe/pull/limits.h"

namespace troupe::pull {
namespace {

std::uint64_t chunk_size(const RepoFile& file, std::size_t chunk) {
  return std::min(kChunkBytes, file.size - chunk * kChunkBytes);
}

/// Whether the next try, at the same server, may bring what this one did not.
bool may_pass(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kCorrupt;
}

}  // namespace

std::vector<std::unique_ptr<HubConnection>> connect_all(const PullOptions& options) {
  std::vector<std::unique_ptr<HubConnection>> all;
  for (const http::Url& url : options.endpoints)
    all.push_back(std::make_unique<HubConnection>(
        HubOptions{url, all.empty() ? options.token : std::string(), options.silence}));
  return all;
}

Download::Download(PullOptions options, const std::string& commit, std::vector<RepoFile> files,
                   HubFolder folder, PullProgress& progress)
    : options_(std::move(options)),
      commit_(commit),
      folder_(std::move(folder)),
      progress_(progress),
      given_up_(options_.endpoints.size()) {
  for (RepoFile& entry : files) files_.push_back({.entry = std::move(entry)});
}

Status Download::run() {
  left_ = files_.size();
  for (File& file : files_)
    if (const Status begun = begin(file); !begun.ok()) return begun;
  std::vector<std::thread> threads;
  for (int i = 0; i < options_.connections; ++i) threads.emplace_back([this] { work(); });
  for (std::thread& thread : threads) thread.join();
  return error_ ? Status(*error_) : Status();
}

Status Download::begin(File& file) {
  auto part = PartFile::open(folder_.parts(), file.entry);
  if (!part.ok()) return part.error();
  file.part = std::move(*part);
  for (std::size_t i = 0; i < file.part->chunks(); ++i)
    if (file.part->has(i)) progress_.bytes += chunk_size(file.entry, i);
  queue(file);
  return {};
}

/// Of a file of which all is here one more job is queued, which finds nothing to fetch.
void Download::queue(File& file) {
  const std::lock_guard lock(mutex_);
  file.chunks_left = 0;
  for (std::size_t i = 0; i < file.part->chunks(); ++i) {
    if (file.part->has(i)) continue;
    jobs_.push_back({&file, i, file.endpoint});
    ++file.chunks_left;
  }
  if (file.chunks_left == 0) {
    jobs_.push_back({&file, file.part->chunks(), file.endpoint});
    file.chunks_left = 1;
  }
  changed_.notify_all();
}

std::optional<Download::Job> Download::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return error_ || left_ == 0 || !jobs_.empty(); });
  if (error_ || left_ == 0) return std::nullopt;
  const Job job = jobs_.front();
  jobs_.pop_front();
  return job;
}

bool Download::stopping() {
  const std::lock_guard lock(mutex_);
  return error_.has_value();
}

/// False: the download has ended meanwhile.
bool Download::pause(Duration time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return error_.has_value(); });
}

bool Download::is_given_up(std::size_t endpoint) {
  const std::lock_guard lock(mutex_);
  return given_up_[endpoint];
}

void Download::give_up(std::size_t endpoint, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (given_up_[endpoint]) return;
  given_up_[endpoint] = true;
  logger().warn("{} is not asked any more: {}", options_.endpoints[endpoint].text(), why);
}

void Download::work() {
  Connections connections = connect_all(options_);
  while (const auto job = next()) {
    const Status done = carry_out(*job, connections);
    if (done.ok()) continue;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = done.error();
    changed_.notify_all();
  }
}

Status Download::carry_out(const Job& job, Connections& connections) {
  File& file = *job.file;
  if (job.chunk < file.part->chunks()) {
    if (const Status fetched = fetch_chunk(job, connections); !fetched.ok()) return fetched;
    if (const Status marked = file.part->mark(job.chunk); !marked.ok()) return marked;
  }
  {
    const std::lock_guard lock(mutex_);
    if (--file.chunks_left > 0) return {};
  }
  return finish(file);
}

Status Download::fetch_chunk(const Job& job, Connections& connections) {
  std::optional<Error> last;
  std::uint64_t got = 0;
  for (std::size_t i = job.endpoint; i < connections.size(); ++i) {
    const bool is_last = i + 1 == connections.size();
    if (!is_last && is_given_up(i)) continue;
    Duration wait = kRetryPause;
    int tries = 0;
    while (tries < kTriesMax) {
      const std::uint64_t before = got;
      const Status fetched = fetch_from(*connections[i], job, got);
      if (fetched.ok()) return {};
      if (fetched.error().code == ErrorCode::kResourceExhausted || stopping()) return fetched;
      last = fetched.error();
      if (!may_pass(*last)) break;
      // A server that brings something is asked for the rest: the last one however little it is.
      const bool moved = got - before >= (is_last ? 1 : kProgressBytesMin);
      tries = moved ? 0 : tries + 1;
      wait = moved ? kRetryPause : std::min<Duration>(2 * wait, kRetryPauseMax);
      if (tries < kTriesMax && !pause(wait)) return fetched;
    }
    if (is_last) break;
    if (tries == kTriesMax) give_up(i, last->message);
    logger().info("{} comes from the next endpoint: {}", job.file->entry.path, last->message);
  }
  return last ? *last : unavailable("No endpoint is left to ask.");
}

Status Download::fetch_from(HubConnection& hub, const Job& job, std::uint64_t& got) {
  File& file = *job.file;
  const std::uint64_t begin = job.chunk * kChunkBytes;
  const std::uint64_t size = chunk_size(file.entry, job.chunk);
  Status written;
  const Status fetched =
      hub.fetch("/" + options_.name + "/resolve/" + commit_ + "/" + url_path(file.entry.path),
                {begin + got, size - got, file.entry.size}, [&](std::string_view bytes) {
                  written = file.part->write(begin + got, bytes);
                  if (!written.ok()) return written;
                  got += bytes.size();
                  progress_.bytes += bytes.size();
                  return Status();
                });
  return written.ok() ? fetched : written;
}

Status Download::finish(File& file) {
  const auto good = file.part->verify();
  if (!good.ok()) return good.error();
  if (*good) {
    const Status moved = file.part->move_to(folder_.blobs() / file.entry.digest);
    if (!moved.ok()) return moved;
    ++progress_.files;
    file.part.reset();
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
    return {};
  }
  progress_.bytes -= file.entry.size;
  const bool resumed = file.part->resumed();
  if (const Status cleared = file.part->clear(); !cleared.ok()) return cleared;
  if (resumed) {
    logger().warn("What an earlier run left of {} is damaged; all of it comes again.",
                  file.entry.path);
    queue(file);
    return {};
  }
  const std::string from = options_.endpoints[file.endpoint].text();
  if (++file.endpoint >= options_.endpoints.size())
    return corrupt("The file " + file.entry.path + " from " + from +
                   " does not have the checksum that the listing names; it is not kept. Try again, "
                   "or another --endpoint.");
  logger().warn("The file {} from {} does not have its checksum; it comes again from {}.",
                file.entry.path, from, options_.endpoints[file.endpoint].text());
  queue(file);
  return {};
}

}  // namespace troupe::pull
