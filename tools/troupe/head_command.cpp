#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tools/troupe/commands.h"
#include "tools/troupe/head_process.h"
#include "tools/troupe/service_notifier.h"
#include "tools/troupe/signals.h"
#include "tools/troupe/standby_process.h"

namespace troupe::cli {
namespace {

/// What serves now, for the service manager's one line. Thread-safe.
class Current {
 public:
  void set(HeadNode* head, StandbyProcess* standby) {
    std::lock_guard lock(mutex_);
    head_ = head;
    standby_ = standby;
  }
  ServiceNotifier::State state() {
    std::lock_guard lock(mutex_);
    if (standby_) return {true, standby_->message()};
    if (!head_) return {false, starting_};
    if (const auto trouble = head_->trouble())
      return {false, head_->state() + ": " + trouble->message};
    const std::size_t devices = head_->devices();
    return {head_->ready(), head_->state() + " with " + std::to_string(devices) +
                                (devices == 1 ? " device" : " devices")};
  }
  bool alive() {
    std::lock_guard lock(mutex_);
    return !head_ || head_->takes_turns();
  }

 private:
  std::mutex mutex_;
  HeadNode* head_ = nullptr;           // guarded by mutex_
  StandbyProcess* standby_ = nullptr;  // guarded by mutex_
  static constexpr const char* starting_ = "starting, or waiting for what its standby says";
};

void say_how_to_join(const HeadProcess& process, const CommonOptions& common,
                     const std::string& state_dir) {
  const bool given = common.state_dir_given || state_dir != common.state_dir;
  const std::string join = given ? " --join '" + process.files().join_path() + "'" : "";
  const std::string state = given ? " --state-dir '" + state_dir + "'" : "";
  std::fprintf(stderr,
               "The head listens on %s. On each worker run:\n  %s worker --head %s%s\n"
               "(on another machine with a copy of %s and --join FILE,\n"
               "or with --token and what `%s token create%s` prints)\n",
               to_string(process.control_address()).c_str(), common.program.c_str(),
               to_string(found_at(process.control_address())).c_str(), join.c_str(),
               process.files().join_path().c_str(), common.program.c_str(), state.c_str());
}

/// Whom it is to follow next, if anybody.
struct Next {
  std::string follow;
  int code = kDone;
};

class HeadCommand {
 public:
  HeadCommand(const CommonOptions& common, const HeadFlags& flags, HeadModel model,
              const Doubles& doubles, const Signals& signals, ServiceNotifier& notifier)
      : common_(common),
        flags_(flags),
        model_(std::move(model)),
        doubles_(doubles),
        signals_(signals),
        notifier_(notifier) {}

  int run() {
    auto state_dir = folder();
    if (!state_dir.ok()) return fail_with(state_dir.error());
    state_dir_ = std::move(*state_dir);
    auto first = whom_first();
    if (!first.ok()) return fail_with(first.error());
    notifier_.start({[&] { return current_.state(); }, [&] { return current_.alive(); }});
    Next next{std::move(*first)};
    bool head = next.follow.empty();
    while (next.code == kDone && !over_ && (head || !next.follow.empty())) {
      next = head ? lead() : follow(next.follow);
      head = rules_;
    }
    notifier_.stop();
    return next.code;
  }

 private:
  Result<std::string> folder() const {
    if (flags_.standby_of.empty()) return common_.state_dir;
    return StandbyFiles::choose_folder(common_.state_dir);
  }

  /// Whom it followed when its process ended, or whom it is told to follow: unless it has become
  /// the head since then.
  Result<std::string> whom_first() {
    const auto earlier = StandbyFiles::earlier(state_dir_);
    if (!earlier.ok()) return earlier.error();
    if (*earlier) return flags_.standby_of.empty() ? (*earlier)->head_address : flags_.standby_of;
    if (StandbyFiles::became_head(state_dir_)) return std::string();
    return flags_.standby_of;
  }

  bool interrupted() {
    const auto signal = signals_.wait(Duration::zero());
    if (signal == SIGTERM || signal == SIGINT) over_ = true;
    return over_;
  }

  Next follow(const std::string& head) {
    rules_ = false;
    if (flags_.no_journal)
      return {"", fail_with(invalid_argument("--no-journal: a standby has a copy of the head's "
                                             "journal; start it without this flag."))};
    auto process = StandbyProcess::start(state_dir_, flags_, model_, head);
    if (!process.ok()) return {"", fail_with(process.error())};
    current_.set(nullptr, process->get());
    std::fprintf(stderr, "This is a standby of the head at %s, and listens on %s.\n", head.c_str(),
                 flags_.listen.c_str());
    const auto outcome = (*process)->wait([this] { return interrupted(); });
    current_.set(nullptr, nullptr);
    rules_ = outcome.rules;
    if (outcome.code != kDone) return {"", fail({ErrorCode::kRefused, outcome.reason})};
    if (!outcome.rules && !outcome.reason.empty()) over_ = true;
    return {};
  }

  Next lead() {
    rules_ = false;
    const TimePoint started = now();
    CommonOptions common = common_;
    common.state_dir = state_dir_;
    auto start =
        HeadProcess::start(common, flags_, model_, doubles_, [this] { return interrupted(); });
    if (!start.ok()) return {"", over_ ? kDone : fail_with(start.error())};
    if (!start->process) return {start->follow};
    HeadProcess& process = *start->process;
    current_.set(&process.head(), nullptr);
    say_how_to_join(process, common_, state_dir_);
    std::thread announcer([&] {
      while (!process.closing() && !process.head().wait_ready(std::chrono::seconds(1))) {
      }
      if (!process.closing())
        std::fputs(ready_message(process.head(), now() - started, common, flags_).c_str(), stderr);
    });
    while (!over_ && !process.ended()) {
      const auto signal = signals_.wait(std::nullopt);
      over_ = signal == SIGTERM || signal == SIGINT;
    }
    const std::string deposed_by = process.head().deposed_by();
    if (deposed_by.empty()) over_ = true;
    if (over_) notifier_.stop();
    current_.set(nullptr, nullptr);
    process.begin_close();
    announcer.join();
    start->process.reset();
    return {deposed_by};
  }

  const CommonOptions& common_;
  const HeadFlags& flags_;
  const HeadModel model_;
  const Doubles& doubles_;
  std::string state_dir_;
  const Signals& signals_;
  ServiceNotifier& notifier_;
  Current current_;
  bool over_ = false;
  bool rules_ = false;  ///< it has just become the head
};

int run(const CommonOptions& common, const HeadFlags& flags, const Doubles& doubles) {
  const Signals signals;
  (void)speak_as("head", common);
  ServiceNotifier notifier;
  auto model = open_head_model(flags, 1, CheckpointUse::kHeaders);
  if (!model.ok()) return fail_with(model.error());
  return HeadCommand(common, flags, std::move(*model), doubles, signals, notifier).run();
}

}  // namespace

Command head_command(const Doubles& doubles) {
  auto o = std::make_shared<HeadFlags>();
  Command command{
      .name = "head",
      .description = "Run the head: it waits for workers, then serves the OpenAI API",
      .examples =
          "  troupe head --model /models/DeepSeek-V3 --listen 10.0.0.1:6379 --min-devices 8\n"
          "  troupe head --model DIR --pipeline-parallel-size 2 --port 9000 --api-key SECRET\n"
          "  troupe head --model DIR --listen 10.0.0.2:6379 --standby-of 10.0.0.1:6379\n"
          "  troupe head --model DIR --api-key TEAM:weight=3 --api-key "
          "BATCH:weight=1,max-running=64",
      .run = [o, doubles](const Call& call) { return run(call.common, *o, doubles); },
      .takes_signals = true};
  add_head_flags(command, *o);
  add_lone_head_flags(command, *o);
  return command;
}

}  // namespace troupe::cli
