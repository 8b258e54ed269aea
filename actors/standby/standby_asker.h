#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/head_link.h"
#include "actors/interfaces.h"

namespace troupe {

/// A head asks whoever listens where its standby listened whether it may go on: the standby then
/// gives up what it could have taken over with, or it has become the head already. Not thread-safe.
class StandbyAsker {
 public:
  using MakeLink = std::function<Result<std::unique_ptr<HeadLink>>(const HostPort& standby)>;
  explicit StandbyAsker(MakeLink make_link) : make_link_(std::move(make_link)) {}
  ~StandbyAsker();
  /// No answer comes after it, and nothing is asked any more.
  void end();

  /// One question at a time: an earlier one ends. `answered` is called once, on any thread, or
  /// never.
  /// `self`: the asking head's own life, which may be found there by mistake; 0: none is up.
  void ask(const std::string& address, const std::string& cluster_id, Incarnation self,
           std::function<void(StandbyAnswered)> answered);

 private:
  const MakeLink make_link_;
  std::unique_ptr<HeadLink> link_;
  bool ended_ = false;
};

}  // namespace troupe
