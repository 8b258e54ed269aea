#include "tools/troupe/crash_report.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "actors/api/client_session.h"
#include "actors/control/caf_system.h"
#include "actors/control/credentials.h"
#include "runtime/log.h"

namespace troupe::cli {
namespace {

constexpr unsigned kDeadlineS = 3;
constexpr int kTold = 0, kNotTold = 1;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

/// The rest of a service or a job may be told to end when its main process has crashed.
void take_no_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  alarm(kDeadlineS);  // its default action ends the process, whatever waits
}

int tell(const JoinFile& join, CrashReport report) {
  auto caf = CafSystem::make();
  if (!caf.ok()) return kNotTold;
  auto answer = std::make_shared<std::promise<void>>();
  auto answered = answer->get_future();
  auto once = std::make_shared<std::once_flag>();
  const auto heard = [=] { std::call_once(*once, [&] { answer->set_value(); }); };
  auto session =
      ClientSession::open((*caf)->system(), join, "troupe crash-report",
                          std::chrono::seconds(kDeadlineS),
                          {.message =
                               [=](const Message& message) {
                                 if (std::holds_alternative<OperationProgress>(message)) heard();
                               },
                           .down = [=](const std::string&) { heard(); }});
  if (!session.ok() || !(*session)->send(std::move(report)).ok()) return kNotTold;
  const auto status = answered.wait_for(std::chrono::seconds(kDeadlineS));
  return status == std::future_status::ready ? kTold : kNotTold;
}

}  // namespace

int report_crash(std::span<char* const> words) {
  take_no_signals();
  LogOptions silent;
  silent.level = "off";
  if (words.size() != 5 || !init_log(silent).ok()) return kNotTold;
  const auto node = number(words[2]), life = number(words[3]), signal = number(words[4]);
  auto join = read_join_file(words[0]);
  if (!join.ok() || !node || !life || !signal || *signal >= NSIG) return kNotTold;
  if (*words[1] != '\0') join->heads = {words[1]};
  CrashReport report;
  report.query = 1;
  report.node = NodeId{static_cast<std::uint32_t>(*node)};
  report.incarnation = Incarnation{*life};
  report.signal = static_cast<std::int32_t>(*signal);
  report.reason = std::string("SIG") + sigabbrev_np(report.signal) + " (" +
                  sigdescr_np(report.signal) + ")";
  return tell(*join, std::move(report));
}

}  // namespace troupe::cli
