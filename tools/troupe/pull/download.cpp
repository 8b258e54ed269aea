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

}  // namespace

Download::Download(const PullOptions& options, Mirrors& mirrors, std::vector<RepoFile> files,
                   const HubFolder& folder, PullProgress& progress)
    : options_(options), mirrors_(mirrors), folder_(folder), progress_(progress) {
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

void Download::work() {
  Connections connections = connect_all(options_);
  while (const auto job = next()) {
    const Status done = carry_out(*job, connections);
    if (done.ok()) continue;
    mirrors_.stop();
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
  File& file = *job.file;
  return mirrors_.fetch({file.entry.path, job.chunk * kChunkBytes,
                         chunk_size(file.entry, job.chunk), file.entry.size, job.endpoint},
                        connections, [&](std::uint64_t offset, std::string_view bytes) {
                          const Status written = file.part->write(offset, bytes);
                          if (written.ok()) progress_.bytes += bytes.size();
                          return written;
                        });
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
