#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "tests/actors/api/support.h"
#include "tests/promises.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

const char* const kBrandy = "brandy (noun): distilled from wine or fermented fruit juice.";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TEST_CASE("a cluster in this process answers, also many at once") {
  const auto cluster = start_demo();
  std::vector<std::future<Result<Generation>>> answers;
  for (int i = 0; i < 16; ++i)
    answers.push_back(std::async(std::launch::async,
                                 [&] { return cluster->generate(question("What is brandy?")); }));
  for (auto& future : answers) {
    const auto answer = future.get();
    REQUIRE(answer.ok());
    REQUIRE(answer->choices.size() == 1);
    CHECK(ends_with(answer->choices[0].text, kBrandy));
    CHECK(answer->choices[0].finish == FinishReason::kStop);
    CHECK(answer->choices[0].tokens.size() == 37);
    CHECK(answer->prompt_tokens.size() == 11);
    CHECK(answer->timing.total_ms > 0);
  }
}

TEST_CASE("every choice is its own, and the same seed gives the same ones") {
  const auto cluster = start_demo();
  GenerationRequest request;
  request.prompt = "Once upon a";
  request.temperature = 1.5f;
  request.seed = 7;
  request.n = 3;
  request.max_tokens = 12;
  request.logprobs = 0;
  const auto first = cluster->generate(request);
  const auto again = cluster->generate(request);
  REQUIRE(first.ok());
  REQUIRE(again.ok());
  REQUIRE(first->choices.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(first->choices[i].tokens == again->choices[i].tokens);
  CHECK(first->choices[0].tokens != first->choices[1].tokens);
}

TEST_CASE("hidden states of a prompt, of all its tokens or of the last") {
  const auto cluster = start_demo();
  GenerationRequest request;
  request.prompt = std::vector<TokenId>{0, 5, 6, 7};
  request.pooling = Pooling::kAll;
  const auto all = cluster->generate(request);
  request.pooling = Pooling::kLast;
  const auto last = cluster->generate(request);
  REQUIRE(all.ok());
  REQUIRE(last.ok());
  CHECK(last->choices.at(0).tokens.empty());
  REQUIRE(all->hidden.size() == 4 * last->hidden.size());
  CHECK(std::equal(last->hidden.begin(), last->hidden.end(),
                   all->hidden.end() - static_cast<std::ptrdiff_t>(last->hidden.size())));
  request.n = 2;
  CHECK(cluster->generate(request).error().message.starts_with("n: "));
  request.n = 1;
  request.prompt_logprobs = 0;
  CHECK(cluster->generate(request).error().message.starts_with("prompt_logprobs: "));
}

TEST_CASE("what is wrong with a request is an error that names the field") {
  const auto cluster = start_demo();
  GenerationRequest request = question("What is brandy?");
  SUBCASE("temperature") { request.temperature = -1.0f; }
  SUBCASE("n") { request.n = 4'000'000'000u; }
  SUBCASE("n of none") { request.n = 0; }
  SUBCASE("prompt") { request.prompt = std::vector<TokenId>{1, 1'000'000}; }
  const auto answer = cluster->generate(request);
  REQUIRE(!answer.ok());
  CHECK(answer.error().code == ErrorCode::kInvalidArgument);
  CHECK(!answer.error().message.empty());
  CHECK(!cluster->stream(question("What is brandy?"), {}).ok());
  CHECK(cluster->generate(question("What is brandy?")).ok());
}

TEST_CASE("a stream that is cancelled ends once, as cancelled") {
  const auto cluster = start_demo();
  Events events;
  const auto number = cluster->stream(endless(), events.sink());
  REQUIRE(number.ok());
  REQUIRE(events.wait([&] { return events.events > 2; }));
  cluster->cancel(*number);
  cluster->cancel(*number);
  cluster->cancel(12345);
  REQUIRE(events.wait([&] { return events.ends > 0; }));
  CHECK(cluster->generate(question("What is brandy?")).ok());
  CHECK(events.ends == 1);
  REQUIRE(events.error);
  CHECK(events.error->code == ErrorCode::kCancelled);
}

TEST_CASE("a cluster that ends tells the requests that are not over") {
  Events events;
  auto cluster = start_demo();
  for (int i = 0; i < 8; ++i) REQUIRE(cluster->stream(endless(), events.sink()).ok());
  REQUIRE(events.wait([&] { return events.events > 8; }));
  const auto before = std::chrono::steady_clock::now();
  cluster.reset();
  promised("a cluster ends", std::chrono::steady_clock::now() - before, std::chrono::seconds(8));
  CHECK(events.ends == 8);
  REQUIRE(events.error);
  CHECK(!events.error->message.empty());
}

TEST_CASE("clusters in one process: one after the other, and at once") {
  for (int i = 0; i < 3; ++i) CHECK(start_demo()->generate(question("What is brandy?")).ok());
  const auto one = start_demo();
  const auto two = start_demo();
  auto other =
      std::async(std::launch::async, [&] { return two->generate(question("What is brandy?")); });
  const auto answer = one->generate(question("What is brandy?"));
  const auto same = other.get();
  REQUIRE(answer.ok());
  REQUIRE(same.ok());
  CHECK(answer->choices[0].text == same->choices[0].text);
}

TEST_CASE("a cluster that cannot start says why") {
  LocalClusterOptions options;
  options.engine.model = kDemo;
  std::string expected;
  SUBCASE("no model") { options.engine.model = "/nowhere", expected = "/nowhere"; }
  SUBCASE("block size") { options.engine.block_size = 0, expected = "--block-size"; }
  SUBCASE("sequences") { options.engine.max_num_seqs = -1, expected = "--max-num-seqs"; }
  SUBCASE("threads") { options.threads = -1, expected = "threads"; }
  SUBCASE("parallel") { options.engine.tensor_parallel_size = 3, expected = "--tensor-parallel"; }
  SUBCASE("memory") { options.device_memory = 1 << 20, expected = "bytes"; }
  const auto cluster = Cluster::start(options);
  REQUIRE(!cluster.ok());
  INFO(cluster.error().message);
  CHECK(cluster.error().message.find(expected) != std::string::npos);
}

TEST_CASE("the status and the events of a cluster in this process") {
  auto cluster = start_demo();
  const auto status = cluster->status_json();
  REQUIRE(status.ok());
  CHECK(status->find("\"state\":\"ready\"") != std::string::npos);
  std::mutex mutex;
  std::vector<std::string> kinds;
  REQUIRE(cluster
              ->subscribe([&](const ClusterEvent& event) {
                std::lock_guard lock(mutex);
                kinds.push_back(event.kind);
              })
              .ok());
  cluster.reset();
  REQUIRE(!kinds.empty());
  CHECK(kinds.front() == "stopping");
}

TEST_CASE("a drain and a rebalance of a cluster in this process end with what came of them") {
  const auto cluster = start_demo();
  const auto last = cluster->drain(NodeId{1});
  REQUIRE(!last.ok());
  CHECK(last.error().message.find("last worker") != std::string::npos);
  const auto nobody = cluster->drain(NodeId{9});
  REQUIRE(!nobody.ok());
  CHECK(nobody.error().code == ErrorCode::kNotFound);
  int news = 0;
  const auto moved = cluster->rebalance([&](const MovesProgress&) { ++news; });
  REQUIRE_MESSAGE(moved.ok(), moved.error().message);
  CHECK(*moved == "Nothing had to move.");
  CHECK(cluster->generate(question("What is brandy?")).ok());
}

TEST_CASE("connecting to a head that is missing, or to a file that is none") {
  const auto nowhere = Cluster::connect("/nowhere/join");
  REQUIRE(!nowhere.ok());
  CHECK(nowhere.error().code == ErrorCode::kNotFound);
  const auto no_join_file = Cluster::connect(kDemo + "/config.json");
  REQUIRE(!no_join_file.ok());
  CHECK(no_join_file.error().message.find("config.json") != std::string::npos);
}
