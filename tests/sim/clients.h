#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/router/journal.h"
#include "actors/router/request_desk.h"
#include "runtime/key_share.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/history.h"

namespace troupe::sim {

class World;

/// Keys of the HTTP side, and whose of these a client's requests are.
inline const std::vector<KeyShare> kKeys = {{1, 2.0f, 1}, {2, 0.5f, 0}, {3, 1.0f, 3}};
inline std::uint64_t owner_of(std::size_t client) { return client % (kKeys.size() + 1); }

/// Those who ask, and compare every token that they get with the one that it must be.
class Clients final : public RequestDesk {
 public:
  explicit Clients(World& world) : world_(world) {}

  /// Each asks at its time, and again as long as it is told to come later.
  void begin(const std::vector<RequestSpec>& specs);
  /// Somebody begins to compute something else: who is being served may get other tokens.
  void doubt();
  /// What a head has read that begins: nothing in it is wrong, and nothing that a client knows to
  /// be over runs again, or is gone.
  void check_restored(const Journal& journal);
  /// Who has a key asks again with it; the others for what follows what they have.
  void head_died();

  // RequestDesk
  void accepted(RequestAccepted accepted) override;
  void deliver(DeliverEvent delivery) override;
  void found(RequestsFound) override {}
  void observe(const RequestObservation&) override {}
  void changed(const Router&) override {}

  bool all_over() const { return over_ == clients_.size(); }
  /// Since when somebody waits and nobody gets anything; none: nobody waits. (Who waits while
  /// others are served may just have to wait for its turn.)
  std::optional<TimePoint> waits_since() const;
  std::string describe() const;

 private:
  struct Client {
    RequestSpec spec;
    std::vector<Expected> expected;  ///< by choice
    std::vector<std::size_t> tokens;
    std::vector<bool> finished;
    std::optional<std::uint64_t> ticket;   ///< of its newest question, until it is over
    std::string id;                        ///< of that question, then of the request
    bool known = false;                    ///< it was accepted with an earlier question
    bool keyed = false;
    bool told = false;                     ///< something of its request, by whatever head
    bool reads_on = false;                 ///< its newest question is for what follows
    std::optional<std::uint64_t> request;  ///< while it is accepted and not over
    TimePoint deadline{}, soonest{};  ///< of the head that it is with; of the first one
    bool asked = false;
    bool cancelled = false;
    bool leaves = false;  ///< instead of having it deleted
    bool may_differ = false;  ///< something wrong was at work while it was served
    bool over = false;
  };
  void ask(std::size_t number);
  void submit(std::size_t number);
  void read_on(std::size_t number);
  void ask_again(std::size_t number);
  void refused(std::size_t number, const Error& error);
  void cancel(std::size_t number, std::uint64_t request);
  void deliver(Client& client, const GenerationEvent& event);
  void check_tokens(const Client& client, const GenerationEvent& event);
  void check_end(const Client& client, const GenerationEvent& event);
  bool refused(const Client& client, const GenerationEvent& event);
  void end(Client& client);

  World& world_;
  std::vector<Client> clients_;
  std::uint64_t next_ticket_ = 1;
  std::map<std::uint64_t, std::size_t> tickets_;  // that are not answered
  std::map<std::uint64_t, std::size_t> readers_;  // tickets whose requests are not over
  void check_restored(const Journal& journal, const Journal::Request& request);
  /// Of a request that clients know to be over.
  struct End {
    bool error = false;
    bool kept = false;  ///< whoever asks later hears of it
  };
  std::map<std::string, End> ends_;
  std::size_t over_ = 0;
  TimePoint progress_{};  // the newest token or acceptance, or the first question after a calm
};

}  // namespace troupe::sim
