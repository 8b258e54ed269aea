#include "actors/standby/standby_node.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "actors/base/shell.h"
#include "actors/control/server_lane.h"
#include "actors/head/journal_writer.h"
#include "actors/standby/standby_mail.h"
#include "model/grammar/compiled_grammar.h"
#include "runtime/log.h"

namespace troupe {

struct StandbyNode::Impl {
  explicit Impl(CafHost& outer) : host(outer), mail(outer.post()) {}
  ~Impl();
  Status start(StandbyOptions options, std::unique_ptr<HeadLink> head_link);
  void end(Outcome outcome);

  CafHost& host;
  StandbyMail mail;
  StandbyKeeper* keeper = nullptr;
  std::unique_ptr<JournalWriter> journal;
  std::unique_ptr<HeadLink> link;
  ServerLane lane;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::optional<Outcome> outcome;  // guarded by mutex
  std::string message;             // guarded by mutex
  FollowState known;               // guarded by mutex
};

/// Once its word cannot be kept on the disk nothing more leaves: nobody may hear it.
struct StandbyHands {
  StandbyNode::Impl* node;
  bool failed = false;
  template <class Effect>
  void carry_out(Effect&& effect, const Standby&) {
    if (!failed) act(effect);
  }
  void act(SeekHead&) { node->link->connect(); }
  void act(LeaveHead&) { node->link->close(); }
  /// If the session has ended, its end is on its way.
  void act(ToHead& e) {
    (void)node->link->send({node->mail.self.address, {}, std::move(e.message)});
  }
  void act(ToSession& e) {
    const StandbyMail& mail = node->mail;
    (void)node->lane.send(e.session,
                          {mail.self.address, mail.address_of(e.session), std::move(e.message)});
  }
  void act(EndSession& e) { node->lane.close(e.session, e.reason); }
  void act(KeepCopy& e) { node->journal->keep(std::move(e.records)); }
  void act(KeepFollowing& e) {
    const Status kept = node->keeper->keep(e.state);
    failed = !kept.ok();
    if (!e.state.cluster_id.empty()) node->journal->learn_cluster(e.state.cluster_id);
    if (failed) node->end({false, 1, kept.error().message});
  }
  void act(KeepKnown& e) { node->keeper->keep(e.lines); }
  void act(TakeOver&) { node->end({true, 0, ""}); }
  void act(StandbyEnds& e) { node->end({false, e.code, e.reason}); }
  void act(StandbySays& e) { logger().info("{}", e.text); }
  void turned(const Standby& standby) {
    std::lock_guard lock(node->mutex);
    node->message = standby.message();
    node->known = standby.known();
  }
};

Status StandbyNode::Impl::start(StandbyOptions options, std::unique_ptr<HeadLink> head_link) {
  const Ref<StandbyInbox> self = mail.self;
  keeper = options.keeper;
  link = std::move(head_link);
  link->listen(mail.of_head());
  journal = std::make_unique<JournalWriter>(JournalWriter::Options{
      {std::make_shared<DiskFiles>(),
       options.journal_folder,
       {.model = options.journal_model, .masks = CompiledGrammar::kMasksVersion},
       {},
       options.random,
       true},
      [this, self](JournalKept kept) { host.post().tell(self, kept); },
      [this, self](JournalFailed failed) { host.post().tell(self, std::move(failed)); }});
  const Status listening =
      lane.listen(host.system(), options.listen, options.credentials, {}, mail);
  if (!listening.ok()) return listening;
  if (options.machine.address.empty())
    options.machine.address = to_string(HostPort{options.listen.host, lane.port()});
  host.spawn(self.address,
             [this, self, machine = options.machine](const Life&) {
               return std::make_unique<Shell<Standby, StandbyHands>>(
                   host, self.address, Standby(machine), StandbyHands{this});
             },
             {});
  journal->begin();
  return {};
}

void StandbyNode::Impl::end(Outcome how) {
  std::lock_guard lock(mutex);
  if (!outcome) outcome = std::move(how);
  changed.notify_all();
}

StandbyNode::Impl::~Impl() {
  host.end(mail.self.address);
  if (!host.wait_ended(mail.self.address, limits::kActorStopDeadline))
    logger().error("the standby's actor does not end");
  lane.end();
  link.reset();
  journal.reset();
}

StandbyNode::StandbyNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StandbyNode::~StandbyNode() = default;

Result<std::unique_ptr<StandbyNode>> StandbyNode::start(CafHost& host, StandbyOptions options,
                                                        std::unique_ptr<HeadLink> link) {
  auto impl = std::make_unique<Impl>(host);
  if (const Status started = impl->start(std::move(options), std::move(link)); !started.ok())
    return started.error();
  return std::unique_ptr<StandbyNode>(new StandbyNode(std::move(impl)));
}

std::optional<StandbyNode::Outcome> StandbyNode::wait(Duration patience) {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, patience, [&] { return impl_->outcome.has_value(); });
  return impl_->outcome;
}

Status StandbyNode::use(const Credentials& head, const Credentials& worker) {
  if (const Status listening = impl_->lane.use(head); !listening.ok()) return listening;
  return impl_->link->use(worker);
}

std::string StandbyNode::message() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->message;
}

std::uint16_t StandbyNode::port() const { return impl_->lane.port(); }

FollowState StandbyNode::known() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->known;
}

}  // namespace troupe
