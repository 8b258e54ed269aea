#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/head/head.h"
#include "actors/head/standby_copy.h"
#include "actors/standby/standby.h"
#include "actors/standby/standby_asker.h"
#include "actors/standby/standby_mail.h"
#include "runtime/log.h"
#include "tests/sim/head_box.h"
#include "tests/sim/world.h"

/// The processes of a head's box, with all that is around their actors.
namespace troupe::sim {

// --- The process --------------------------------------------------------------------------------

struct HeadBox::Program {
  std::unique_ptr<HeadLink> link;
  std::uint64_t query = 0;
  bool over = false;
};

/// A Router's journal goes to the disk, and to whoever follows.
class CopyingStore final : public JournalStore {
 public:
  CopyingStore(SimHost& host, SimJournal& journal) : host_(host), journal_(journal) {}
  StandbyCopy copies;
  void keep(KeepRecords records) override {
    if (records.copy_to != 0) copies.copy(records);
    if (host_.acts()) journal_.keep(std::move(records));
  }
  void note(const JournalNote& note) override {
    if (host_.alive()) journal_.note(note);
  }

 private:
  SimHost& host_;
  SimJournal& journal_;
};

/// What a head tells counts as long as clients are with it.
class Desk final : public RequestDesk {
 public:
  Desk(SimHost& host, HeadBox& box, World& world) : host_(host), box_(box), world_(world) {}
  void accepted(RequestAccepted accepted) override {
    if (current() && host_.acts()) world_.clients.accepted(std::move(accepted));
  }
  void deliver(DeliverEvent delivery) override {
    if (current() && host_.acts()) world_.clients.deliver(std::move(delivery));
  }
  void found(RequestsFound found) override { world_.clients.found(std::move(found)); }
  void observe(const RequestObservation& seen) override { world_.clients.observe(seen); }
  void changed(const Router& router) override { world_.clients.changed(router); }

 private:
  bool current() const { return world_.head.is_door(box_); }
  SimHost& host_;
  HeadBox& box_;
  World& world_;
};

/// One that outlives whoever uses it: what is under way may still refer to it.
class LentLink final : public HeadLink {
 public:
  LentLink(SimLink& link, ControlNetwork& network) : link_(link), network_(network) {}
  ~LentLink() override {
    link_.listen(
        {[](const ControlWay&) {}, [](const Envelope&) {}, [](const std::string&, bool) {}});
    network_.died(link_);
  }
  void listen(Events events) override { link_.listen(std::move(events)); }
  void connect() override { link_.connect(); }
  Status send(const Envelope& envelope) override { return link_.send(envelope); }
  void close() override { link_.close(); }

 private:
  SimLink& link_;
  ControlNetwork& network_;
};

struct HeadBox::Life {
  Life(HeadBox& box, const SupervisorOptions& options)
      : host(box.world_, box.machine_),
        store(host, box.journal_),
        desk(host, box, box.world_),
        head(host, {started_at(host.now(), options), router_options(box, options), box, desk,
                    &store, box.world_.control}),
        asker([this, &box](const HostPort&) -> Result<std::unique_ptr<HeadLink>> {
          return std::unique_ptr<HeadLink>(std::make_unique<LentLink>(
              asked.emplace_back(host, box.world_.control, std::vector{box.partner_}),
              box.world_.control));
        }) {
    store.copies.begin(head.hub(), head.supervisor().address);
  }
  ~Life() { host.clear(); }
  Router::Options router_options(HeadBox& box, const SupervisorOptions& options) {
    Router::Options router;
    router.shares = KeyShares(kKeys);
    // The calendar's clock steps.
    router.started = {host.now(), static_cast<std::int64_t>(box.lives_.size()) * 1'000'000};
    const Ref<RouterInbox> self(kHeadNode, options.incarnation);
    const SimJournal::Found found = box.journal_.open(
        host,
        {[this, self](JournalKept kept) { host.post().tell(self, kept); },
         [this, self](JournalFailed failed) { host.post().tell(self, std::move(failed)); }},
        options.incarnation, box.known_);
    router.journal = found.journal;
    router.journal_file = found.first_file;
    if (found.journal) box.world_.clients.check_restored(*found.journal);
    return router;
  }
  static SupervisorOptions started_at(TimePoint now, SupervisorOptions options) {
    options.started = now;
    return options;
  }

  SimHost host;
  CopyingStore store;
  Desk desk;
  Head head;
  std::deque<SimLink> asked;
  StandbyAsker asker;
  std::vector<std::unique_ptr<Program>> programs;
};

// --- As a standby -------------------------------------------------------------------------------

struct StandbyDouble {  ///< the hands of one
  HeadBox* box;
  HeadBox::Follower* life;
  void carry_out(SeekHead&&, const Standby&);
  void carry_out(LeaveHead&&, const Standby&);
  void carry_out(ToHead&& e, const Standby&);
  void carry_out(ToSession&& e, const Standby&);
  void carry_out(EndSession&& e, const Standby&);
  void carry_out(KeepCopy&& e, const Standby&);
  void carry_out(KeepFollowing&& e, const Standby&);
  void carry_out(KeepKnown&&, const Standby&) {}
  void carry_out(TakeOver&&, const Standby&);
  void carry_out(StandbyEnds&& e, const Standby&);
  void carry_out(StandbySays&& e, const Standby&) { logger().info("standby: {}", e.text); }
};

struct HeadBox::Follower {
  explicit Follower(HeadBox& box)
      : host(box.world_, box.machine_),
        mail(host.post()),
        link(host, box.world_.control, {box.partner_}) {
    const Ref<StandbyInbox> self = mail.self;
    const auto tell = [this, self](auto message) { host.post().tell(self, std::move(message)); };
    link.listen(mail.of_head());
    Standby::Options options;
    options.version = "";
    options.checkpoint_hash = "hash";
    options.engine = box.options().engine;
    options.address = to_string(listens_at(box.machine_));
    options.earlier = box.following_;
    options.earlier.head_address = to_string(listens_at(box.partner_));
    options.journal_file = box.journal_.follow(host, {tell, tell});
    options.random = [&loop = box.world_.loop] { return loop.draw(); };
    options.next_term = [&box](Incarnation newest) {
      box.kept_incarnation_ = std::max(box.kept_incarnation_, newest.value);
      return Incarnation{first_incarnation(box.kept_incarnation_, 0)};
    };
    host.spawn(self.address,
               [this, self, &box, options](const troupe::Life&) {
                 return std::make_unique<Shell<Standby, StandbyDouble>>(
                     host, self.address, Standby(options), StandbyDouble{&box, this});
               },
               {});
  }
  ~Follower() { host.clear(); }

  SimHost host;
  StandbyMail mail;
  SimLink link;
};

/// While it asks its standby whether it may go on.
struct HeadBox::Asker {
  explicit Asker(HeadBox& box)
      : host(box.world_, box.machine_),
        asker([this, &box](const HostPort&) -> Result<std::unique_ptr<HeadLink>> {
          return std::unique_ptr<HeadLink>(std::make_unique<LentLink>(
              asked.emplace_back(host, box.world_.control, std::vector{box.partner_}),
              box.world_.control));
        }) {}
  ~Asker() { host.clear(); }
  SimHost host;
  std::deque<SimLink> asked;
  StandbyAsker asker;
};

}  // namespace troupe::sim
