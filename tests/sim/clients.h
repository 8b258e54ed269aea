#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/router/router.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/history.h"

namespace troupe::sim {

class World;

/// Those who ask, and compare every token that they get with the one that it must be.
class Clients {
 public:
  explicit Clients(World& world) : world_(world) {}

  /// Each asks at its time, and again as long as it is told to come later.
  void begin(const std::vector<RequestSpec>& specs);
  /// Of the request that is being submitted now.
  void accepted(std::uint64_t request);
  void receive(const RouterActions::Deliver& delivery);
  /// What it had accepted dies with it.
  void head_died();

  bool all_over() const { return over_ == clients_.size(); }
  std::string describe() const;

 private:
  struct Client {
    RequestSpec spec;
    std::vector<Expected> expected;  ///< by choice
    std::vector<std::size_t> tokens;
    std::vector<bool> finished;
    std::optional<std::uint64_t> request;  ///< while it is accepted and not over
    TimePoint deadline{};
    bool cancelled = false;
    bool over = false;
  };
  void ask(std::size_t number);
  void cancel(std::size_t number, std::uint64_t request);
  void check_tokens(const Client& client, const GenerationEvent& event);
  void check_end(const Client& client, const GenerationEvent& event);
  void end(Client& client);

  World& world_;
  std::vector<Client> clients_;
  std::map<std::uint64_t, std::size_t> requests_;  // that are not over
  std::size_t asking_ = 0;
  std::size_t over_ = 0;
};

}  // namespace troupe::sim
