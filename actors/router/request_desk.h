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
  virtual void observe(const RequestObservation& observation) = 0;
  virtual void changed(const Router& router) = 0;
};

/// The Router's hands.
struct RouterHands {
  RequestDesk* desk;
  void carry_out(RequestAccepted&& e, const Router&) { desk->accepted(std::move(e)); }
  void carry_out(DeliverEvent&& e, const Router&) { desk->deliver(std::move(e)); }
  void carry_out(RequestObservation&& e, const Router&) { desk->observe(e); }
  void carry_out(RequestsChanged&&, const Router& router) { desk->changed(router); }
};

}  // namespace troupe
