#include "tools/troupe/bench/cluster.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/troupe/bench/limits.h"
#include "tools/troupe/chat/terminal_text.h"

namespace troupe::bench {
namespace {

using nlohmann::json;

/// No Linux has a higher number.
constexpr std::int64_t kPidMax = 1 << 22;

std::string word_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const json& list_of(const json& object, const char* name) {
  static const json none = json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : none;
}

/// A handle on one process: its number may be another's a moment later.
class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;
  ~ProcessHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool open() const { return fd_ >= 0; }
  bool kill() const { return ::syscall(SYS_pidfd_send_signal, fd_, SIGKILL, nullptr, 0) == 0; }

 private:
  const int fd_;
};

/// The first two words of its command line.
std::pair<std::string, std::string> first_words(const std::string& folder) {
  std::ifstream file(folder + "/cmdline", std::ios::binary);
  std::string program, word;
  std::getline(file, program, '\0');
  std::getline(file, word, '\0');
  return {program, word};
}

/// The file's name of its program, "" if it may not be known. A new build leaves " (deleted)".
std::string program_of(const std::string& folder) {
  char path[4096];
  const ssize_t length = ::readlink((folder + "/exe").c_str(), path, sizeof path);
  if (length <= 0) return {};
  std::string name(path, static_cast<std::size_t>(length));
  name.erase(0, name.rfind('/') + 1);
  return name.substr(0, name.find(" (deleted)"));
}

}  // namespace

HttpRequest status_request() { return {"GET", "/cluster/status", "", kAskDeadline}; }

Result<json> parse_status(const Result<HttpAnswer>& answer) {
  if (!answer.ok()) return answer.error();
  if (answer->head.status != 200)
    return unavailable("/cluster/status answers HTTP " + std::to_string(answer->head.status));
  json status = json::parse(answer->body, nullptr, false);
  if (!status.is_object() || !status.contains("cluster") || !status.contains("nodes"))
    return corrupt("/cluster/status is not a Troupe's");
  return status;
}

std::vector<Mark> events_since(const json& status, double since_unix_s) {
  std::vector<Mark> marks;
  for (const json& event : list_of(status, "events")) {
    if (!event.is_object()) continue;
    const auto time = event.find("time");
    if (time == event.end() || !time->is_number() || time->get<double>() < since_unix_s) continue;
    const auto told = [&](const char* name) {
      return chat::terminal_line(word_of(event, name), kErrorBytesMax);
    };
    marks.push_back({time->get<double>() - since_unix_s, told("kind"), told("text")});
  }
  return marks;
}

std::vector<LocalWorker> local_workers(const json& status, std::string_view host) {
  std::vector<LocalWorker> workers;
  for (const json& node : list_of(status, "nodes")) {
    if (!node.is_object() || word_of(node, "role") != "worker" ||
        word_of(node, "state") != "ready" || word_of(node, "host") != host)
      continue;
    const auto pid = node.find("pid");
    if (pid == node.end() || !pid->is_number_unsigned()) continue;
    const auto number = pid->get<std::uint64_t>();
    if (number > 1 && number < kPidMax)
      workers.push_back({word_of(node, "id"), static_cast<pid_t>(number)});
  }
  return workers;
}

Status kill_worker(pid_t pid) {
  const ProcessHandle process(pid);
  if (!process.open())
    return not_found("process " + std::to_string(pid) + ": " + std::strerror(errno));
  // From here on the number is known to be this process's, or its successor's, whom the handle
  // does not reach.
  const std::string folder = "/proc/" + std::to_string(pid);
  struct stat owner {};
  if (::stat(folder.c_str(), &owner) != 0 || owner.st_uid != ::geteuid())
    return refused("process " + std::to_string(pid) + " is another user's");
  const auto [program, word] = first_words(folder);
  if (program_of(folder) != "troupe" || word != "worker")
    return refused("process " + std::to_string(pid) + " is no troupe worker but '" + program + "'");
  if (!process.kill())
    return not_found("process " + std::to_string(pid) + ": " + std::strerror(errno));
  return {};
}

}  // namespace troupe::bench
