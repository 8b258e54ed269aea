#include "model/tensor_proofs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "model/file_error.h"
#include "model/tensor_hash.h"
#include "model/weight_file.h"
#include "runtime/buffer.h"

namespace troupe {
namespace {

/// Where O_DIRECT reads may begin and end, and buffers lie: no block device wants more.
constexpr std::uint64_t kBlock = 4096;
constexpr std::size_t kPieceBytes = 1u << 20;

/// Reads ranges of one file past the page cache, from its beginning to its end.
class StorageReader {
 public:
  explicit StorageReader(const WeightFile& file)
      : file_(file), direct_(file.open_direct()) {
    const auto at = reinterpret_cast<std::uintptr_t>(room_.data());
    aligned_ = room_.data() + (kBlock - at % kBlock) % kBlock;
  }
  ~StorageReader() {
    if (direct_ >= 0) ::close(direct_);
  }
  StorageReader(const StorageReader&) = delete;
  StorageReader& operator=(const StorageReader&) = delete;

  const WeightFile& file() const { return file_; }

  /// Bytes from `offset` on, at least one, none from `end` on; valid until the next call. What lies
  /// up to `run_end` is wanted next, and comes with them as far as there is room.
  Result<std::span<const std::byte>> read(std::uint64_t offset, std::uint64_t end,
                                          std::uint64_t run_end) {
    if (offset < held_from_ || offset >= held_from_ + held_.size()) {
      auto filled = fill(offset, run_end);
      if (!filled) filled = fill(offset, end);  // what is wrong may lie behind what is asked for
      if (!filled) return filled.error();
    }
    const auto found = held_.subspan(static_cast<std::size_t>(offset - held_from_));
    return found.first(static_cast<std::size_t>(std::min<std::uint64_t>(found.size(),
                                                                        end - offset)));
  }

 private:
  Status fill(std::uint64_t offset, std::uint64_t end) {
    held_ = {};
    const std::uint64_t skipped = offset % kBlock;
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(end - offset,
                                                                         kPieceBytes));
    if (direct_ >= 0) {
      const std::size_t blocks = (skipped + wanted + kBlock - 1) / kBlock * kBlock;
      ssize_t got = 0;
      do got = ::pread(direct_, aligned_, blocks, static_cast<off_t>(offset - skipped));
      while (got < 0 && errno == EINTR);
      const auto usable = got > 0 ? static_cast<std::uint64_t>(got) : 0;
      if (usable > skipped) {
        hold(offset, {aligned_ + skipped, std::min<std::size_t>(usable - skipped, wanted)});
        return {};
      }
      if (got >= 0) return corrupt(file_.path() + " ends too early");
      if (errno != EINVAL && errno != EOPNOTSUPP)
        return file_error(file_.path(), "cannot be read at byte " + std::to_string(offset), errno);
      ::close(std::exchange(direct_, -1));  // some file systems only say now that they have it not
    }
    // Whole pages only are forgotten, so the range is widened to them.
    ::posix_fadvise(file_.descriptor(), static_cast<off_t>(offset - skipped),
                    static_cast<off_t>(wanted + 2 * kBlock), POSIX_FADV_DONTNEED);
    const std::span<std::byte> out(aligned_, wanted);
    if (auto status = file_.read(offset, out); !status) return status;
    hold(offset, out);
    return {};
  }

  void hold(std::uint64_t from, std::span<const std::byte> bytes) {
    held_from_ = from;
    held_ = bytes;
  }

  const WeightFile& file_;
  int direct_;
  Buffer room_ = Buffer::uninitialized(kPieceBytes + 2 * kBlock);
  std::byte* aligned_ = nullptr;
  std::uint64_t held_from_ = 0;
  std::span<const std::byte> held_;
};

/// A tensor that is to be read, and where those end that lie behind it without a gap.
struct Wanted {
  StoredTensor tensor;
  std::uint64_t run_end = 0;

  std::uint64_t end() const { return tensor.offset + tensor.bytes; }
};

/// In the order of the files.
Result<std::vector<Wanted>> in_order(const Checkpoint& checkpoint,
                                     std::span<const std::string> tensors) {
  std::vector<Wanted> order;
  for (const std::string& name : tensors) {
    auto tensor = checkpoint.find(name);
    if (!tensor) return tensor.error();
    order.push_back({std::move(*tensor)});
  }
  std::ranges::sort(order, {}, [](const Wanted& w) {
    return std::pair<const std::string&, std::uint64_t>(w.tensor.file->name(), w.tensor.offset);
  });
  for (std::size_t i = order.size(); i-- > 0;) {
    Wanted& w = order[i];
    const Wanted* next = i + 1 < order.size() ? &order[i + 1] : nullptr;
    const bool joined = next && next->tensor.file == w.tensor.file &&
                        next->tensor.offset == w.end();
    w.run_end = joined ? next->run_end : w.end();
  }
  return order;
}

Result<TensorProof> read_proof(const Checkpoint& checkpoint, const Wanted& wanted,
                               StorageReader& reader, const std::atomic<bool>* stop) {
  const StoredTensor& tensor = wanted.tensor;
  TensorHash hash(tensor);
  for (std::uint64_t at = tensor.offset; at < wanted.end();) {
    if (stop && *stop) return cancelled("Nobody wants to know any more.");
    const auto bytes = reader.read(at, wanted.end(), wanted.run_end);
    if (!bytes) return checkpoint.failed(tensor, bytes.error());
    hash.add(*bytes);
    at += bytes->size();
  }
  if (auto status = checkpoint.confirm(tensor); !status) return status.error();
  return TensorProof{tensor.name, tensor.file->name(), hash.digests(), {}};
}

}  // namespace

Status read_proofs(const Checkpoint& checkpoint, std::span<const std::string> tensors,
                   std::vector<TensorProof>& read, const std::atomic<bool>* cancelled) {
  const auto order = in_order(checkpoint, tensors);
  if (!order) return order.error();
  std::unique_ptr<StorageReader> reader;  // of the file at hand
  for (const Wanted& wanted : *order) {
    if (!reader || &reader->file() != wanted.tensor.file)
      reader = std::make_unique<StorageReader>(*wanted.tensor.file);
    auto proof = read_proof(checkpoint, wanted, *reader, cancelled);
    if (!proof) return proof.error();
    read.push_back(std::move(*proof));
  }
  return {};
}

}  // namespace troupe
