#include "tools/troupe/standby_files.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include "actors/control/private_file.h"
#include "runtime/log.h"

namespace troupe::cli {
namespace {

constexpr std::string_view kFollowingFormat = "troupe-following-1";
constexpr std::size_t kFollowingBytesMax = 1u << 20;

std::string following_path(const std::string& state_dir) { return state_dir + "/following"; }

std::string text_of(const FollowState& state) {
  std::ostringstream out;
  out << kFollowingFormat << '\n'
      << "address " << state.head_address << '\n'
      << "cluster " << (state.cluster_id.empty() ? "-" : state.cluster_id) << '\n'
      << "head " << state.head.value << '\n'
      << "term " << state.term.value << '\n'
      << "standby " << state.standby << '\n'
      << "next-node " << state.next_node << '\n'
      << "complete " << (state.complete ? 1 : 0) << '\n';
  for (const WorkerLife& life : state.members)
    out << "member " << life.id.value << ' ' << life.incarnation.value << '\n';
  return std::move(out).str();
}

std::optional<FollowState> parse_following(const std::string& text) {
  std::istringstream in(text);
  FollowState state;
  std::string word;
  const auto number = [&](std::string_view name, auto& value) {
    return in >> word && word == name && in >> value;
  };
  if (!(in >> word) || word != kFollowingFormat) return std::nullopt;
  if (!number("address", state.head_address) || !number("cluster", state.cluster_id) ||
      !number("head", state.head.value) || !number("term", state.term.value) ||
      !number("standby", state.standby) || !number("next-node", state.next_node) ||
      !number("complete", state.complete))
    return std::nullopt;
  if (state.cluster_id == "-") state.cluster_id.clear();
  while (in >> word) {
    WorkerLife life;
    if (word != "member" || !(in >> life.id.value >> life.incarnation.value)) return std::nullopt;
    state.members.push_back(life);
  }
  return state;
}

}  // namespace

Result<std::string> StandbyFiles::choose_folder(const std::string& state_dir) {
  namespace fs = std::filesystem;
  const std::string within = state_dir + "/standby";
  std::error_code failed;
  if (fs::exists(following_path(within), failed) || became_head(within)) return within;
  const std::string credentials = state_dir + "/credentials.pem";
  if (!fs::exists(credentials, failed))
    return not_found("There is no " + credentials +
                     "; copy the one of the head there (from its state folder, readable by its "
                     "owner only): workers will take this standby for the head by it.");
  if (!ClusterFiles::in_use(state_dir)) return state_dir;
  if (const Status made = control::make_private_folder(within); !made.ok()) return made.error();
  auto pem = control::read_small_file(credentials, kFollowingBytesMax);
  if (!pem.ok()) return pem.error();
  if (const Status copied = control::write_private_file(within + "/credentials.pem", *pem,
                                                        control::IfExists::kReplace);
      !copied.ok())
    return copied.error();
  return within;
}

Result<std::optional<FollowState>> StandbyFiles::earlier(const std::string& state_dir) {
  const std::string path = following_path(state_dir);
  const auto text = control::read_small_file(path, kFollowingBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return std::optional<FollowState>();
  if (!text.ok()) return text.error();
  auto state = parse_following(*text);
  if (!state)
    return corrupt(
        "The file " + path +
        " is not what a standby of this version writes; delete it, and it begins again.");
  return state;
}

std::optional<FollowState> StandbyFiles::running(const std::string& state_dir) {
  if (!ClusterFiles::in_use(state_dir)) return std::nullopt;
  auto state = earlier(state_dir);
  return state.ok() ? std::move(*state) : std::nullopt;
}

bool StandbyFiles::became_head(const std::string& state_dir) {
  std::error_code failed;
  return std::filesystem::exists(state_dir + "/role", failed);
}

StandbyFiles::StandbyFiles(std::string state_dir, std::string known_model)
    : state_dir_(std::move(state_dir)),
      known_model_(std::move(known_model)),
      known_(state_dir_ + "/known") {}

/// What it was as a head is over once its word is there.
Status StandbyFiles::keep(const FollowState& state) {
  if (const Status written = control::write_private_file(following_path(state_dir_), text_of(state),
                                                         control::IfExists::kReplace);
      !written.ok())
    return written;
  std::error_code failed;
  for (const char* name : {"/role", "/standby-at"})
    std::filesystem::remove(state_dir_ + name, failed);
  return {};
}

void StandbyFiles::forget() {
  std::error_code failed;
  std::filesystem::remove(following_path(state_dir_), failed);
}

void StandbyFiles::keep(const KnownLines& lines) {
  const Status begun = lines.begins ? known_.begin(known_model_, {}) : Status();
  const Status kept = begun.ok() ? known_.add_lines(lines.lines) : begun;
  if (!kept.ok()) logger().error("{}", kept.error().message);
}

/// The promise goes last: until then it is a standby that may ask.
Status StandbyFiles::inherit(const FollowState& state) {
  const auto write = [&](const char* name, const std::string& word) {
    return control::write_private_file(state_dir_ + "/" + name, word + '\n',
                                       control::IfExists::kReplace);
  };
  for (const auto& [name, word] : {std::pair{"cluster-id", state.cluster_id},
                                   std::pair{"incarnation", std::to_string(state.term.value)},
                                   std::pair{"next-node", std::to_string(state.next_node)},
                                   std::pair{"role", std::string("head")}})
    if (const Status written = write(name, word); !written.ok()) return written;
  std::error_code failed;
  std::filesystem::remove(following_path(state_dir_), failed);
  if (failed)
    return unavailable(following_path(state_dir_) + " cannot be deleted: " + failed.message() +
                       ".");
  return {};
}

}  // namespace troupe::cli
