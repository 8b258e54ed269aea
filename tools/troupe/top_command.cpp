#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "runtime/log.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/console/view.h"
#include "tools/troupe/local_time.h"
#include "tools/troupe/status_link.h"
#include "tools/troupe/terminal.h"

namespace troupe::cli {
namespace {

using console::Facts;
using console::Ui;

/// How often the head is asked, and the screen drawn when nothing else happens.
constexpr Duration kInterval = std::chrono::seconds(1);

/// A descriptor that is closed.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

/// The signals that the console answers to, as a descriptor: no handler ever runs while the screen
/// is being drawn. Made before other threads, which inherit that they are blocked.
int open_console_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP})
    sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/// Keys, news of the cluster and signals come in; the screen goes out.
class Top {
 public:
  Top(Terminal& terminal, StatusLink& link, int signals, int news)
      : terminal_(terminal), link_(link), signals_(signals), news_(news) {
    ui_.glyphs = terminal.unicode() ? console::unicode_glyphs() : console::ascii_glyphs();
    ui_.utc_offset_s = utc_offset_s();
  }

  /// Until it is to end.
  void run() {
    TimePoint draw_at = now();
    while (!over_) {
      draw();
      draw_at = now() + kInterval;
      pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {signals_, POLLIN, 0}, {news_, POLLIN, 0}};
      const auto patience = std::chrono::ceil<std::chrono::milliseconds>(draw_at - now());
      poll(sources, 3, static_cast<int>(std::max<std::int64_t>(0, patience.count())));
      if (sources[1].revents != 0) on_signals();
      if (sources[2].revents != 0) on_news();
      if (sources[0].revents != 0) on_keys((sources[0].revents & (POLLHUP | POLLERR)) != 0);
    }
  }

 private:
  void draw() {
    ui_.now_unix_s = unix_now_s();
    ui_.moves.forget_old(now());
    if (!ui_.connected) ui_.silent_s = std::chrono::duration<double>(now() - heard_).count();
    terminal_.show(
        console::draw(facts_ ? &*facts_ : nullptr, ui_, terminal_.width(), terminal_.height()));
  }

  void on_signals() {
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == sizeof info) {
      switch (static_cast<int>(info.ssi_signo)) {
        case SIGWINCH:
          terminal_.resize();
          break;
        case SIGTSTP:
          terminal_.suspend();
          break;
        default:
          over_ = true;
      }
    }
  }

  void on_news() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto emptied = read(news_, &count, sizeof count);
    if (auto status = link_.take_status()) on_status(*status);
    for (const auto& news : link_.take_progress()) {
      ui_.note = news.error ? news.error->message : news.text;
      if (!news.error && news.total > 0)
        ui_.note =
            std::to_string(news.done) + " of " + std::to_string(news.total) + ": " + ui_.note;
      if (news.finished && ui_.note.empty()) ui_.note = "Done.";
    }
  }

  void on_status(const Result<std::string>& status) {
    auto facts = status.ok() ? reader_.read(*status) : Result<Facts>(status.error());
    ui_.connected = facts.ok();
    if (!facts.ok()) {
      ui_.link_why = facts.error().message;
      return;
    }
    ui_.link_why.clear();
    heard_ = now();
    if (facts_) ui_.moves.add(facts_->experts, facts->experts, heard_);
    facts_ = std::move(*facts);
  }

  void on_keys(bool hung_up) {
    bool gone = false;
    const auto keys = terminal_.keys(gone);
    // Readable without a key is how the other end of a terminal shows that it was closed.
    over_ = over_ || gone || (hung_up && keys.empty());
    for (const auto key : keys) {
      const console::Command command = on_key(ui_, facts_ ? &*facts_ : nullptr, key);
      if (command.kind == console::Command::Kind::kQuit) over_ = true;
      if (command.kind != console::Command::Kind::kDrain &&
          command.kind != console::Command::Kind::kRebalance)
        continue;
      ui_.note = ui_.connected ? "Asked the head." : "The head does not answer now.";
      if (ui_.connected) link_.order(command);
    }
  }

  Terminal& terminal_;
  StatusLink& link_;
  const int signals_, news_;
  Ui ui_;
  console::FactsReader reader_;
  std::optional<Facts> facts_;
  TimePoint heard_ = now();
  bool over_ = false;
};

int watch(const CommonOptions& common) {
  const Descriptor signals(open_console_signals()), news(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (signals.get() < 0 || news.get() < 0)
    return fail(resource_exhausted("There are no file descriptors left."));
  auto caf = CafSystem::make();
  if (!caf.ok()) return fail(caf.error());
  auto terminal = Terminal::open();
  if (!terminal.ok()) return fail(terminal.error());
  logger().set_level(spdlog::level::off);  // a line of the log would land on the screen
  StatusLink link(**caf, common.state_dir, kInterval, [&news] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(news.get(), &one, sizeof one);
  });
  Top(**terminal, link, signals.get(), news.get()).run();
  // The terminal comes first; nothing else has to be ended in order, so nobody waits for a
  // connection that is still being made.
  terminal->reset();
  std::fflush(stdout);
  std::_Exit(kDone);
}

}  // namespace

Command top_command() {
  return {
      .name = "top",
      .description = "The live console: nodes, replicas, experts, requests, events",
      .examples =
          "  troupe top\n"
          "  NO_COLOR=1 troupe top\n"
          "  troupe top --state-dir /var/lib/troupe\n\n"
          "`?` shows the keys, q ends it. It reads the status once a second, and finds the head\n"
          "again when that was restarted.",
      .run = [](const Call& call) { return watch(call.common); },
      .takes_signals = true};
}

}  // namespace troupe::cli
