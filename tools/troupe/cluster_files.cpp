#include "tools/troupe/cluster_files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "actors/control/file_lock.h"
#include "actors/control/private_file.h"
#include "actors/supervisor/options.h"
#include "runtime/log.h"
#include "tools/troupe/own_address.h"

namespace troupe::cli {
namespace {

/// Longer than any of them.
constexpr std::size_t kWordBytesMax = 4096;
/// What a head writes before it serves, a few times over.
constexpr off_t kReserveBytes = 64 << 10;
/// What is in the folder, and how. Another version of Troupe may keep other things.
constexpr std::string_view kFormat = "troupe-state-1";

/// The first word of a small file; empty if there is no such file.
Result<std::string> read_word(const std::string& path) {
  auto text = control::read_small_file(path, kWordBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return std::string();
  if (!text.ok()) return text.error();
  const auto first = text->find_first_not_of(" \r\n\t");
  if (first == text->npos) return std::string();
  return text->substr(first, text->find_first_of(" \r\n\t", first) - first);
}

Status write_word(const std::string& path, const std::string& word) {
  return control::write_private_file(path, word + '\n', control::IfExists::kReplace);
}

/// A number that a head has kept; 0 if it has kept none.
Result<std::uint64_t> read_number(const std::string& path) {
  const auto word = read_word(path);
  if (!word.ok()) return word.error();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), number);
  if (!word->empty() && (error != std::errc() || end != word->data() + word->size()))
    return corrupt("The file " + path +
                   " does not hold a number; delete the state folder once its cluster has ended.");
  return number;
}

bool is_id(const std::string& text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_';
  });
}

std::string random_id() {
  unsigned char bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) std::memset(bytes, 0, sizeof bytes);
  std::string id;
  for (const unsigned char b : bytes) {
    id += "0123456789abcdef"[b >> 4];
    id += "0123456789abcdef"[b & 15];
  }
  return id;
}

void log_failure(const Status& written) {
  if (!written.ok()) logger().error("{}", written.error().message);
}

}  // namespace

Result<ClusterFiles> ClusterFiles::open(const std::string& state_dir, std::int64_t lifetime_s) {
  ClusterFiles files(state_dir);
  if (const Status made = control::make_private_folder(state_dir); !made.ok()) return made.error();
  // Nothing is written before the folder is known to be ours.
  if (const Status locked = files.lock(); !locked.ok()) return locked.error();
  if (const Status checked = files.check_format(); !checked.ok()) return checked.error();
  if (const Status loaded = files.load(lifetime_s); !loaded.ok()) return loaded.error();
  return files;
}

/// A lock of fcntl's tells who holds it, and goes with its process.
Status ClusterFiles::lock() {
  const std::string path = state_dir_ + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0)
    return unavailable("The state folder " + state_dir_ + " cannot be used: " +
                       std::strerror(errno) + "; choose another with --state-dir.");
  control::give_to_owner_of_folder(lock_, path);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(lock_, F_SETLK, &whole) == 0) return {};
  if (errno != EACCES && errno != EAGAIN)
    return unavailable("The state folder " + state_dir_ + " cannot be locked: " +
                       std::strerror(errno) +
                       (errno == ENOLCK ? " (a share must be mounted with locks)" : "") +
                       "; choose another with --state-dir.");
  std::string who = "Another head";
  if (::fcntl(lock_, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK && whole.l_pid > 0)
    who += " (process " + std::to_string(whole.l_pid) + ")";
  return unavailable(who + " uses the state folder " + state_dir_ +
                     "; stop it with `troupe stop`, or choose another with --state-dir.");
}

bool ClusterFiles::in_use(const std::string& state_dir) {
  const int lock = ::open((state_dir + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return false;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool held = ::fcntl(lock, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  ::close(lock);
  return held;
}

Status ClusterFiles::check_format() {
  const std::string path = state_dir_ + "/format";
  const auto format = read_word(path);
  if (!format.ok()) return format.error();
  if (format->empty()) return write_word(path, std::string(kFormat));
  if (*format == kFormat) return {};
  return corrupt("The state folder " + state_dir_ +
                 " was written by another version of Troupe; use that version, or another folder "
                 "with --state-dir.");
}

Status ClusterFiles::load(std::int64_t lifetime_s) {
  auto loaded = load_or_create(state_dir_, lifetime_s);
  if (!loaded.ok()) return loaded.error();
  joined_->credentials = std::move(*loaded);

  const std::string id_path = state_dir_ + "/cluster-id";
  auto id = read_word(id_path);
  if (!id.ok()) return id.error();
  cluster_id = std::move(*id);
  if (cluster_id.empty()) {
    cluster_id = random_id();
    if (const Status written = write_word(id_path, cluster_id); !written.ok())
      return written.error();
  }
  if (!is_id(cluster_id))
    return corrupt("The file " + id_path +
                   " does not hold a cluster's id; delete it, and a new one is made.");
  const std::string life_path = state_dir_ + "/incarnation";
  const auto before = read_number(life_path);
  if (!before.ok()) return before.error();
  const auto unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  incarnation = Incarnation{first_incarnation(*before, unix_us)};
  const Status written =
      in_reserve([&] { return write_word(life_path, std::to_string(incarnation.value)); });
  if (!written.ok()) return written;
  const auto next = read_number(state_dir_ + "/next-node");
  if (!next.ok()) return next.error();
  next_node = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      *next, 1, std::numeric_limits<std::uint32_t>::max()));
  auto at = read_word(state_dir_ + "/standby-at");
  if (!at.ok()) return at.error();
  standby = std::move(*at);
  joined_->standby = standby;
  return {};
}

Result<KnownState> ClusterFiles::known(const std::string& checkpoint_hash,
                                        const std::string& folder) {
  const std::string model = KnownFile::model(checkpoint_hash, folder);
  auto known = known_.read(model);
  if (!known.ok()) return known;
  const Status begun = known_.begin(model, *known);
  if (begun.ok()) return known;
  // Then the file stays as it is, and what cannot be kept is proven afresh. One of another model
  // must not get this one's lines.
  log_failure(begun);
  if (!known->numerics && known->tensors.empty()) log_failure(known_.forget());
  return known;
}

void ClusterFiles::keep_next_node(std::uint32_t id) {
  log_failure(write_word(state_dir_ + "/next-node", std::to_string(id)));
}
void ClusterFiles::keep_numerics(Numerics numerics) { log_failure(known_.add(numerics)); }
void ClusterFiles::keep_tensors(const std::vector<KnownTensor>& tensors) {
  log_failure(known_.add(tensors));
}
void ClusterFiles::keep_canary(const KnownCanary& canary) { log_failure(known_.add(canary)); }
Status ClusterFiles::keep_standby(const std::string& address) {
  standby = address;
  const Status kept = write_word(state_dir_ + "/standby-at", address);
  log_failure(kept);
  if (let_go_) return kept;
  std::lock_guard lock(joined_->mutex);
  joined_->standby = address;
  log_failure(write_heads());
  return kept;
}
std::string ClusterFiles::known_lines(std::function<void(std::string)> added) {
  return known_.lines(std::move(added));
}
void ClusterFiles::forget_known() {
  log_failure(known_.forget());
  if (let_go_) return;
  std::error_code failed;
  std::filesystem::remove(state_dir_ + "/role", failed);
}

ClusterFiles::ClusterFiles(const std::string& state_dir)
    : state_dir_(state_dir), known_(state_dir + "/known") {}

ClusterFiles::ClusterFiles(ClusterFiles&& other) noexcept
    : cluster_id(std::move(other.cluster_id)),
      incarnation(other.incarnation),
      next_node(other.next_node),
      standby(std::move(other.standby)),
      state_dir_(std::move(other.state_dir_)),
      joined_(std::move(other.joined_)),
      known_(std::move(other.known_)),
      lock_(std::exchange(other.lock_, -1)) {}

ClusterFiles::~ClusterFiles() { let_go(); }

/// A process has one lock of a file: to close this later would end that of whoever has it by then.
void ClusterFiles::let_go() {
  if (let_go_.exchange(true)) return;
  if (lock_ >= 0) ::close(lock_);
}

/// So that a head that died for want of room comes back, and what it accepted goes on.
void ClusterFiles::reserve_room() const {
  const std::string path = state_dir_ + "/reserve";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  int error = file < 0 ? errno : 0;
  if (file >= 0) {
    control::give_to_owner_of_folder(file, path);
    error = ::posix_fallocate(file, 0, kReserveBytes);
    ::close(file);
  }
  if (error != 0)
    logger().warn("No room can be reserved for a head that is to come back on a full disk: {}: {}.",
                  path, std::strerror(error));
}

/// What a head cannot begin without.
Status ClusterFiles::in_reserve(const std::function<Status()>& write) const {
  Status written = write();
  std::error_code failed;
  if (!written.ok() && std::filesystem::remove(state_dir_ + "/reserve", failed)) written = write();
  return written;
}

std::string ClusterFiles::join_path() const { return state_dir_ + "/join"; }
std::string ClusterFiles::credentials_path() const {
  return state_dir_ + "/" + std::string(kCredentialsFile);
}

ClusterCredentials ClusterFiles::credentials() const {
  std::lock_guard lock(joined_->mutex);
  return joined_->credentials;
}

Status ClusterFiles::use(const ClusterCredentials& credentials) {
  std::lock_guard lock(joined_->mutex);
  const bool rewrite = joined_->credentials.worker != credentials.worker;
  joined_->credentials = credentials;
  return rewrite ? write_heads() : Status();
}

HostPort found_at(const HostPort& listening) {
  const std::string& host = listening.host;
  const bool everywhere = host == "0.0.0.0" || host == "::" || host.empty();
  return everywhere ? HostPort{own_address(), listening.port} : listening;
}

void ClusterFiles::delete_journal() const {
  std::error_code ec;
  const auto deleted = std::filesystem::remove_all(journal_path(), ec);
  if (ec)
    logger().warn("{} cannot be deleted: {}.", journal_path(), ec.message());
  else if (deleted > 0)
    logger().warn("--no-journal: what an earlier life of the head wrote down of requests, in {}, "
                  "has been deleted.",
                  journal_path());
}

Status ClusterFiles::write_join(const HostPort& listening, const std::string& other) {
  std::lock_guard lock(joined_->mutex);
  joined_->heads = {to_string(found_at(listening))};
  if (found_at(listening) != listening)
    joined_->heads.push_back(to_string({"127.0.0.1", listening.port}));
  if (!other.empty()) joined_->heads.push_back(other);
  const Status written = in_reserve([this] { return write_heads(); });
  if (written.ok()) reserve_room();
  return written;
}

/// With the mutex held. Nothing before it is known where the head listens.
Status ClusterFiles::write_heads() const {
  if (joined_->heads.empty()) return {};
  JoinFile join;
  join.heads = joined_->heads;
  if (!joined_->standby.empty() && join.heads.back() != joined_->standby)
    join.heads.push_back(joined_->standby);
  join.worker = joined_->credentials.worker;
  // `troupe certificate renew` may be about to write it. The Supervisor's turn may wait for this:
  // far shorter than a lease.
  constexpr Duration kPatience = std::chrono::milliseconds(200);
  const auto lock =
      control::FileLock::take(join_path(), control::FileLock::IfMissing::kFail, kPatience);
  if (!lock.ok() && lock.error().code != ErrorCode::kNotFound) return lock.error();
  return write_join_file(join_path(), join);
}

Result<std::string> find_join_file(const std::string& state_dir) {
  const std::string path = state_dir + "/join";
  if (std::filesystem::exists(path)) return path;
  return not_found(
      "No cluster was started with the state folder " + state_dir +
      "; start one with `troupe up`, or say where it keeps its state with --state-dir.");
}

Error no_head(Error why, const std::string& state_dir) {
  // A join file alone is a copy: its head runs elsewhere.
  const bool of_a_head = std::filesystem::exists(state_dir + "/lock");
  if (!passing(why.code) || !of_a_head || ClusterFiles::in_use(state_dir)) return why;
  if (why.message.ends_with('.')) why.message.pop_back();
  why.message += "; no head runs with the state folder " + state_dir +
                 ": start a cluster with `troupe up`, or its head with `troupe head`.";
  return why;
}

}  // namespace troupe::cli
