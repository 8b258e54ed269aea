#include <doctest/doctest.h>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "actors/api/caf.h"
#include "tests/actors/api/support.h"
#include "tests/patience.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

/// What listeners have got.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;            // guarded by mutex
  int events = 0;              // guarded by mutex
  int ends = 0;                // guarded by mutex
  std::optional<Error> error;  // guarded by mutex

  bool wait_for_events(int n) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience, [&] { return events >= n; });
  }
  bool wait_for_ends(int n) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience, [&] { return ends >= n; });
  }
};

caf::behavior listener(caf::event_based_actor*, Heard* heard) {
  return {
      [heard](std::uint64_t, const GenerationEvent& event) {
        std::lock_guard lock(heard->mutex);
        heard->text += event.text;
        ++heard->events;
        if (event.error) heard->error = event.error;
        heard->ends += event.request_done || event.error;
        heard->changed.notify_all();
      },
  };
}

/// Asks from outside of any actor: the number, or the error's text.
Result<std::uint64_t> ask(Cluster& cluster, const Generator& generator,
                          const GenerationRequest& request, const caf::actor& to) {
  caf::scoped_actor self(cluster.system());
  std::optional<Result<std::uint64_t>> answer;
  self->request(generator, kTestPatience, request, to)
      .receive([&](std::uint64_t number) { answer = number; },
               [&](const caf::error& error) {
                 answer = internal_error(cluster.system().render(error));
               });
  return *answer;
}

}  // namespace

TEST_CASE("an actor gets the tokens of what it asks for") {
  const auto cluster = start_demo();
  Heard heard;
  const auto generator = spawn_generator(*cluster);
  const auto to = cluster->system().spawn(listener, &heard);
  REQUIRE(ask(*cluster, generator, question("What is brandy?"), to).ok());
  REQUIRE(heard.wait_for_ends(1));
  CHECK(!heard.error);
  CHECK(heard.events > 10);
  CHECK(heard.text.find("fermented fruit juice") != std::string::npos);
}

TEST_CASE("a bad request is an error answer") {
  const auto cluster = start_demo();
  Heard heard;
  GenerationRequest request = question("What is brandy?");
  request.top_p = 2.0f;
  const auto generator = spawn_generator(*cluster);
  const auto answer =
      ask(*cluster, generator, request, cluster->system().spawn(listener, &heard));
  REQUIRE(!answer.ok());
  CHECK(answer.error().message.find("top_p") != std::string::npos);
  CHECK(heard.events == 0);
}

TEST_CASE("a request ends when it is cancelled, and when its listener dies") {
  const auto cluster = start_demo();
  Heard heard;
  const auto generator = spawn_generator(*cluster);
  const auto to = cluster->system().spawn(listener, &heard);
  const auto number = ask(*cluster, generator, endless(), to);
  REQUIRE(number.ok());
  REQUIRE(heard.wait_for_events(3));
  SUBCASE("cancelled") {
    caf::anon_send(generator, cancel_atom_v, *number);
    REQUIRE(heard.wait_for_ends(1));
    REQUIRE(heard.error);
    CHECK(heard.error->code == ErrorCode::kCancelled);
  }
  SUBCASE("dead") { caf::anon_send_exit(to, caf::exit_reason::kill); }
  const auto until = std::chrono::steady_clock::now() + kTestPatience;
  const auto idle = [&] {
    return nlohmann::json::parse(*cluster->status_json())["requests"]["running"] == 0;
  };
  while (!idle() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  CHECK(idle());
}
