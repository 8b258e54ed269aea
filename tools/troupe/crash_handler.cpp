#include "tools/troupe/crash_handler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "actors/head/head_crashes.h"
#include "runtime/in_hand.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kAddressBytesMax = 4096;

/// What the handler needs, written beforehand: there it may neither allocate nor lock.
struct Words {
  char join[kAddressBytesMax] = {};
  char head[kAddressBytesMax] = {};
  bool first_process = false;
  char file[kAddressBytesMax] = {};
};
Words words;
std::atomic<std::uint64_t> own_life{0};  // 0: it is no member
std::atomic<std::uint32_t> own_node{0};
std::atomic<std::uint64_t> own_term{0};  // 0: it is no head
std::atomic_flag crashed;

/// A number as text at the end of `buffer`.
template <std::size_t kSize>
char* text_of(std::uint64_t number, char (&buffer)[kSize]) {
  char* at = buffer + kSize - 1;
  *at = '\0';
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  return at;
}

/// Raised by the kernel for what the process did, or by the process itself. Memory that the
/// hardware lost is nobody's doing.
bool by_itself(int signal, const siginfo_t& info) {
  if (info.si_code <= 0) return info.si_pid == getpid();
  return !(signal == SIGBUS && (info.si_code == BUS_MCEERR_AR || info.si_code == BUS_MCEERR_AO));
}

void start_report(int signal) {
  char node[24], life[24], number[24];
  char program[] = "troupe", command[] = "crash-report";
  char* const argv[] = {program,
                        command,
                        words.join,
                        words.head,
                        text_of(own_node.load(), node),
                        text_of(own_life.load(), life),
                        text_of(static_cast<std::uint64_t>(signal), number),
                        nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    setpgid(0, 0);
    // The cluster must see at once that this process's connections are closed.
    close_range(STDERR_FILENO + 1, ~0U, 0);
    execv("/proc/self/exe", argv);
    _exit(1);
  }
  // With the first process of a container everything ends that runs there.
  if (child > 0 && words.first_process) waitpid(child, nullptr, 0);
}

void append_line(int signal) {
  const int file = open(words.file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0 ||
      info.st_size >= static_cast<off_t>(kHeadCrashesBytesMax))
    return;
  char term[24], number[24];
  const std::string_view at = InHand::current().empty() ? "-" : InHand::current();
  const char* const term_at = text_of(own_term.load(), term);
  const char* const number_at = text_of(static_cast<std::uint64_t>(signal), number);
  char space[] = " ", end[] = "\n";
  const iovec line[] = {{const_cast<char*>(term_at), std::strlen(term_at)},
                        {space, 1},
                        {const_cast<char*>(number_at), std::strlen(number_at)},
                        {space, 1},
                        {const_cast<char*>(at.data()), at.size()},
                        {end, 1}};
  if (writev(file, line, std::size(line)) > 0) fdatasync(file);
}

/// By a child, which is waited for a moment: were the disk to hold this thread up, the others would
/// go on with what it has damaged. What a disk that hangs was to write comes when it goes on.
void write_down(int signal) {
  constexpr int kLooks = 500;
  constexpr timespec kBetween{0, 1'000'000};
  const pid_t child = _Fork();  // it takes no lock, unlike fork()
  if (child == 0) {
    close_range(0, ~0U, 0);  // as in start_report(); and whoever reads the log must see its end
    append_line(signal);
    _exit(0);
  }
  for (int i = 0; child > 0 && i < kLooks && waitpid(child, nullptr, WNOHANG) == 0; ++i)
    nanosleep(&kBetween, nullptr);
}

void on_crash(int signal, siginfo_t* info, void*) {
  if (by_itself(signal, *info) && (own_life.load() != 0 || own_term.load() != 0)) {
    // The first thread that crashes ends the process, when it has told.
    if (crashed.test_and_set())
      while (true) pause();
    if (own_term.load() != 0) write_down(signal);
    if (own_life.load() != 0) start_report(signal);
  }
  struct sigaction otherwise {};
  otherwise.sa_handler = SIG_DFL;
  sigaction(signal, &otherwise, nullptr);
  // What the kernel raised comes again by itself; what was sent does not.
  if (info->si_code <= 0) raise(signal);
}

void take_crashes() {
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
    sigaction(signal, &action, nullptr);
}

}  // namespace

void report_crashes(const std::string& join_path, const std::string& head) {
  if (join_path.size() >= kAddressBytesMax || head.size() >= kAddressBytesMax) return;
  std::memcpy(words.join, join_path.c_str(), join_path.size() + 1);
  std::memcpy(words.head, head.c_str(), head.size() + 1);
  words.first_process = getpid() == 1;
  take_crashes();
}

void write_down_crashes(const std::string& path, Incarnation term) {
  own_term = 0;
  if (path.empty() || path.size() >= kAddressBytesMax) return;
  std::memcpy(words.file, path.c_str(), path.size() + 1);
  own_term = term.value;
  take_crashes();
}

void report_crashes_as(NodeId node, Incarnation life) {
  own_life = 0;
  own_node = node.value;
  own_life = life.value;
}

}  // namespace troupe::cli
