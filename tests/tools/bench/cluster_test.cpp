#include "tools/troupe/bench/cluster.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tools/troupe/bench/worker_killer.h"

namespace troupe::bench {
namespace {

TEST_CASE("workers that may be killed are ready, here, and processes") {
  const auto status = nlohmann::json::parse(R"({"cluster": {}, "nodes": [
    {"id": "node-1", "host": "here", "pid": 100, "role": "worker", "state": "ready"},
    {"id": "node-2", "host": "there", "pid": 101, "role": "worker", "state": "ready"},
    {"id": "node-3", "host": "here", "pid": 102, "role": "worker", "state": "lost"},
    {"id": "node-4", "host": "here", "pid": 103, "role": "head", "state": "ready"},
    {"id": "node-5", "host": "here", "pid": 1, "role": "worker", "state": "ready"},
    {"id": "node-6", "host": "here", "pid": 0, "role": "worker", "state": "ready"},
    {"id": "node-7", "host": "here", "pid": -5, "role": "worker", "state": "ready"},
    {"id": "node-8", "host": "here", "pid": 1e30, "role": "worker", "state": "ready"},
    {"id": "node-9", "host": "here", "pid": "100", "role": "worker", "state": "ready"},
    {"id": "node-0", "host": "here", "role": "worker", "state": "ready"},
    7, null]})");
  const auto workers = local_workers(status, "here");
  REQUIRE(workers.size() == 1);
  CHECK(workers[0].node == "node-1");
  CHECK(workers[0].pid == 100);
  CHECK(local_workers(nlohmann::json::parse(R"({"nodes": 3})"), "here").empty());
}

TEST_CASE("only a troupe worker is killed") {
  int pipe[2], execs[2];
  REQUIRE(::pipe(pipe) == 0);
  REQUIRE(::pipe2(execs, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Says that it is one; nobody reads what it writes, so that it waits.
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execl("/usr/bin/yes", "troupe", "worker", nullptr);
    ::_exit(127);
  }
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    ::execl("/bin/sleep", "sleep", "60", nullptr);
    ::_exit(127);
  }
  // Its other end closes when both are what they become: until then they have this one's handlers.
  ::close(execs[1]);
  char none = 0;
  REQUIRE(::read(execs[0], &none, 1) == 0);
  ::close(execs[0]);
  for (const pid_t pid : {child, sleeper, ::getpid()}) {
    const Status killed = kill_worker(pid);
    REQUIRE(!killed.ok());
    CHECK(killed.error().code == ErrorCode::kRefused);
  }
  ::kill(sleeper, SIGTERM);
  ::kill(child, SIGTERM);
  int how = 0;
  REQUIRE(::waitpid(sleeper, &how, 0) == sleeper);
  CHECK(WIFSIGNALED(how));
  CHECK(WTERMSIG(how) == SIGTERM);
  REQUIRE(::waitpid(child, &how, 0) == child);
  CHECK(WIFSIGNALED(how));
  ::close(pipe[0]);
  ::close(pipe[1]);
  const Status gone = kill_worker(sleeper);
  REQUIRE(!gone.ok());
  CHECK(gone.error().code == ErrorCode::kNotFound);
}

TEST_CASE("events become marks from the beginning on") {
  const auto status = nlohmann::json::parse(R"({"events": [
    {"time": 99.5, "kind": "join", "text": "before"},
    {"time": 101.25, "kind": "lost", "text": "node-1"},
    {"time": "soon", "kind": "x"}, {"kind": "x"}, 3]})");
  const auto marks = events_since(status, 100);
  REQUIRE(marks.size() == 1);
  CHECK(marks[0].at_s == doctest::Approx(1.25));
  CHECK(marks[0].kind == "lost");
  CHECK(events_since(nlohmann::json::parse("{}"), 0).empty());
  // A terminal shows them, and would obey what they say.
  const auto hostile = nlohmann::json::parse(
      R"({"events": [{"time": 1, "kind": "k\u001b[31m", "text": "a\u009b2J\nb\u202e"}]})");
  const auto told = events_since(hostile, 0);
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == "k\uFFFD[31m");
  CHECK(told[0].text == "a\uFFFD2J b\uFFFD");
}

TEST_CASE("what is no status is told") {
  CHECK(!parse_status(Result<HttpAnswer>(unavailable("gone"))).ok());
  HttpAnswer answer;
  for (const auto& [status, body, ok] :
       {std::tuple{404, "{}", false}, std::tuple{200, "nope", false}, std::tuple{200, "[]", false},
        std::tuple{200, "{}", false}, std::tuple{200, R"({"cluster": {}, "nodes": []})", true}}) {
    answer.head.status = status;
    answer.body = body;
    CHECK(parse_status(answer).ok() == ok);
  }
}

TEST_CASE("how often to kill") {
  CHECK(*parse_kill("every=10s") == std::chrono::seconds(10));
  CHECK(*parse_kill("every=1.5s") == std::chrono::milliseconds(1500));
  CHECK(*parse_kill("every=500ms") == std::chrono::milliseconds(500));
  for (const char* wrong : {"", "10s", "every=", "every=s", "every=10", "every=10m", "every=-1s",
                            "every=0.01s", "every=1e9s", "every=nans", "every=1s "})
    CHECK(!parse_kill(wrong).ok());
}

}  // namespace
}  // namespace troupe::bench
