#pragma once

#include "actors/router/messages.h"

namespace troupe {

class Router;

/// Where a Router's requests come from and their events go: RequestDoor in a process, the clients
/// of the simulation there. Called inside the Router's turns; must not block.
class RequestDesk {
 public:
  virtual ~RequestDesk() = default;
  virtual void accepted(RequestAccepted accepted) = 0;
  virtual void deliver(DeliverEvent delivery) = 0;
  virtual void found(RequestsFound found) = 0;
  virtual void observe(const RequestObservation& observation) = 0;
  virtual void changed(const Router& router) = 0;
};

/// Where a Router's journal is kept. Called inside the Router's turns; must not block. Answers come
/// as JournalKept and JournalFailed.
class JournalStore {
 public:
  virtual ~JournalStore() = default;
  virtual void keep(KeepRecords records) = 0;
  virtual void note(const JournalNote& note) = 0;
};

/// The Router's hands.
struct RouterHands {
  RequestDesk* desk;
  JournalStore* store;  ///< null if the Router keeps no journal
  void carry_out(RequestsFound&& e, const Router&) { desk->found(std::move(e)); }
  void carry_out(KeepRecords&& e, const Router&) { store->keep(std::move(e)); }
  void carry_out(JournalNote&& e, const Router&) { store->note(e); }
  void carry_out(RequestAccepted&& e, const Router&) { desk->accepted(std::move(e)); }
  void carry_out(DeliverEvent&& e, const Router&) { desk->deliver(std::move(e)); }
  void carry_out(RequestObservation&& e, const Router&) { desk->observe(e); }
  void carry_out(RequestsChanged&&, const Router& router) { desk->changed(router); }
};

}  // namespace troupe
