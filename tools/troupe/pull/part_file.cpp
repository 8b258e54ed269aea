#include "tools/troupe/pull/part_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tools/troupe/pull/limits.h"

namespace troupe::pull {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

using Digest = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

std::string hex_of(Digest& digest) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(digest.get(), bytes.data(), &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

/// SHA-256, or git's hash of a blob, with what git puts before the bytes.
Digest begin_digest(const RepoFile& file) {
  Digest digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), file.is_lfs ? EVP_sha256() : EVP_sha1(), nullptr);
  if (file.is_lfs) return digest;
  const std::string head = "blob " + std::to_string(file.size);
  EVP_DigestUpdate(digest.get(), head.c_str(), head.size() + 1);
  return digest;
}

bool write_at(int fd, std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    offset += static_cast<std::uint64_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

PartFile::PartFile(const std::filesystem::path& folder, const RepoFile& file)
    : file_(file),
      path_((folder / file.digest).string()),
      done_path_(path_ + ".done"),
      chunks_(static_cast<std::size_t>((file.size + kChunkBytes - 1) / kChunkBytes)) {}

PartFile::~PartFile() { close(); }

void PartFile::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (done_fd_ >= 0) ::close(std::exchange(done_fd_, -1));
}

Status PartFile::ready() {
  const std::lock_guard lock(opening_);
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  if (fd_ < 0) fd_ = ::open(path_.c_str(), kFlags, 0644);
  if (fd_ >= 0 && done_fd_ < 0) done_fd_ = ::open(done_path_.c_str(), kFlags, 0644);
  return fd_ >= 0 && done_fd_ >= 0 ? Status() : failed("opened");
}

Error PartFile::failed(const std::string& what) const {
  const int why = errno;
  if (why == ENOSPC || why == EDQUOT || why == EFBIG)
    return resource_exhausted("There is no room for " + file_.path + " in " + path_ + " (" +
                              std::strerror(why) +
                              "); make room, or choose another disk with "
                              "--cache, and run the command again: it goes on where it was.");
  return unavailable("The file " + path_ + " cannot be " + what + ": " + std::strerror(why) + ".");
}

Result<std::unique_ptr<PartFile>> PartFile::open(const std::filesystem::path& folder,
                                                 const RepoFile& file) {
  std::unique_ptr<PartFile> part(new PartFile(folder, file));
  if (const Status opened = part->ready(); !opened.ok()) return opened.error();
  std::string done(part->chunks_ + 1, '0');
  const ssize_t got = ::pread(part->done_fd_, done.data(), done.size(), 0);
  const bool known = got == static_cast<ssize_t>(part->chunks_) &&
                     ::lseek(part->fd_, 0, SEEK_END) == static_cast<off_t>(file.size);
  done.resize(part->chunks_);
  part->done_ = std::move(done);
  part->resumed_ = known && part->done_.find('1') != std::string::npos;
  if (!known)
    if (const Status cleared = part->clear(); !cleared.ok()) return cleared.error();
  part->close();
  return part;
}

Status PartFile::clear() {
  if (const Status opened = ready(); !opened.ok()) return opened;
  resumed_ = false;
  done_.assign(chunks_, '0');
  if (::ftruncate(done_fd_, 0) != 0 || ::ftruncate(fd_, 0) != 0 ||
      ::ftruncate(fd_, static_cast<off_t>(file_.size)) != 0 || !write_at(done_fd_, 0, done_))
    return failed("written");
  close();
  return {};
}

Status PartFile::write(std::uint64_t offset, std::string_view bytes) {
  if (const Status opened = ready(); !opened.ok()) return opened;
  return write_at(fd_, offset, bytes) ? Status() : failed("written");
}

Status PartFile::mark(std::size_t chunk) {
  if (const Status opened = ready(); !opened.ok()) return opened;
  done_[chunk] = '1';
  return write_at(done_fd_, chunk, "1") ? Status() : failed("written");
}

Result<bool> PartFile::verify() {
  if (const Status opened = ready(); !opened.ok()) return opened.error();
  Digest digest = begin_digest(file_);
  std::vector<char> bytes(kReadBytes);
  for (std::uint64_t at = 0; at < file_.size;) {
    const ssize_t got = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failed("read");
    EVP_DigestUpdate(digest.get(), bytes.data(), static_cast<std::size_t>(got));
    at += static_cast<std::uint64_t>(got);
  }
  return hex_of(digest) == file_.digest;
}

Status PartFile::move_to(const std::filesystem::path& to) {
  if (::fsync(fd_) != 0 || ::rename(path_.c_str(), to.c_str()) != 0)
    return failed("moved to " + to.string());
  ::unlink(done_path_.c_str());
  return {};
}

}  // namespace troupe::pull
