#include "tools/troupe/worker_enrolment.h"

#include <filesystem>
#include <thread>

#include "actors/control/certificate_life.h"
#include "actors/control/enrolment.h"
#include "actors/control/private_file.h"
#include "runtime/clock.h"
#include "runtime/limits.h"
#include "runtime/log.h"
#include "tools/troupe/signals.h"

namespace troupe::cli {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(500);

Result<Credentials> seek(Enrolment& enrolment, const HostPort& head) {
  const EndOnSignal end_on_signal;
  bool told = false;
  while (true) {
    auto given = enrolment.ask(head, limits::kHandshakeDeadline);
    const bool later =
        !given.ok() && (passing(given.error().code) || given.error().code == ErrorCode::kNotFound);
    if (!later) return given;
    if (!std::exchange(told, true))
      logger().info("Seeking the head at {}: {}", to_string(head), given.error().message);
    std::this_thread::sleep_for(kPause);
  }
}

bool ended(const JoinFile& join) {
  const auto life = life_of(join.worker.certificate);
  return life.ok() && has_ended(*life, unix_seconds());
}

}  // namespace

Status enrol_worker(const std::string& token, const std::string& head,
                    const std::string& join_path) {
  auto parsed = parse_join_token(token);
  if (!parsed.ok()) return parsed.error();
  if (head.empty()) return invalid_argument("A token names no head; say where it is with --head.");
  const auto address = parse_host_port(head);
  if (!address.ok()) return invalid_argument("--head: " + address.error().message);
  const auto join = read_join_file(join_path);
  if (!join.ok() && join.error().code != ErrorCode::kNotFound) return join.error();
  const bool same = join.ok() && certificate_hash(join->worker.ca_certificate) == parsed->ca_hash;
  if (same && !ended(*join)) return {};
  if (join.ok() && !same)
    return refused(
        "The join file " + join_path +
        " is of another cluster than the token; remove it, or name another place for the "
        "token's with --join.");
  // Before the token is used up: a folder that cannot be written would be the end of it.
  const std::filesystem::path folder = std::filesystem::path(join_path).parent_path();
  if (!folder.empty())
    if (const Status made = control::make_private_folder(folder); !made.ok()) return made;
  auto enrolment = Enrolment::make(std::move(*parsed));
  if (!enrolment.ok()) return enrolment.error();
  auto credentials = seek(*enrolment, *address);
  if (!credentials.ok() && same) {
    // It has ended by this machine's clock only, perhaps.
    logger().warn("The certificate in {} has ended, and the token gives no other: {}", join_path,
                  credentials.error().message);
    return {};
  }
  if (!credentials.ok()) return credentials.error();
  return write_join_file(join_path, {{to_string(*address)}, std::move(*credentials)});
}

}  // namespace troupe::cli
