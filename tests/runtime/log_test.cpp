#include "runtime/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "tests/patience.h"

namespace troupe {
namespace {

/// Standard error as a pipe that keeps writes apart: one read gives one write.
class Stderr {
 public:
  Stderr() : before_(dup(STDERR_FILENO)) {
    REQUIRE(pipe2(ends_.data(), O_DIRECT | O_NONBLOCK | O_CLOEXEC) == 0);
    fcntl(ends_[1], F_SETFL, O_DIRECT);  // as most programs find theirs: a full one is waited for
    dup2(ends_[1], STDERR_FILENO);
  }
  ~Stderr() {
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) close(fd);
  }
  std::vector<std::string> writes() {
    std::vector<std::string> all;
    std::array<char, 8192> bytes;
    for (ssize_t got; (got = read(ends_[0], bytes.data(), bytes.size())) > 0;)
      all.emplace_back(bytes.data(), static_cast<std::size_t>(got));
    return all;
  }

 private:
  const int before_;
  std::array<int, 2> ends_{};
};

/// Standard error as a terminal.
class Terminal {
 public:
  Terminal() : before_(dup(STDERR_FILENO)), screen_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    REQUIRE(grantpt(screen_) == 0);
    REQUIRE(unlockpt(screen_) == 0);
    const int program = open(ptsname(screen_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE(dup2(program, STDERR_FILENO) == STDERR_FILENO);
    close(program);
  }
  ~Terminal() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(screen_);
  }
  /// What it shows next; it may be empty.
  std::string look() {
    pollfd news{screen_, POLLIN, 0};
    std::array<char, 8192> bytes;
    if (poll(&news, 1, 1) != 1) return {};
    const ssize_t got = read(screen_, bytes.data(), bytes.size());
    return {bytes.data(), static_cast<std::size_t>(got > 0 ? got : 0)};
  }

 private:
  const int before_, screen_;
};

}  // namespace

TEST_CASE("whoever stops reading the log holds nobody up, and is told what is left out") {
  Stderr out;
  REQUIRE(init_log({}).ok());
  for (int i = 0; i < 1000; ++i) logger().info("line {}", i);
  logger().error("the end");
  const auto seen = out.writes();
  REQUIRE(!seen.empty());
  REQUIRE(seen.size() < 1000);
  CHECK(seen.back().find("line " + std::to_string(seen.size() - 1)) != std::string::npos);
  logger().info("more");
  const auto more = out.writes();
  REQUIRE(more.size() == 2);
  const std::string left_out = std::to_string(1001 - seen.size()) + " lines are left out here";
  CHECK(more[0].find(left_out) != std::string::npos);
  CHECK(more[1].ends_with("more\n"));
  logger().info("and more");
  CHECK(out.writes().size() == 1);
}

TEST_CASE("a terminal that stands still holds nobody up, and goes on with whole lines") {
  Terminal terminal;
  REQUIRE(init_log({}).ok());
  for (int i = 0; i < 1000; ++i) logger().info("{}", std::string(1000, 'x'));
  std::string shown;
  const TimePoint patience = now() + kTestPatience;
  while (shown.find("left out") == shown.npos && now() < patience) {
    logger().info("more");
    shown += terminal.look();
  }
  CHECK(shown.find("lines are left out here") != shown.npos);
  for (std::size_t at = 0; (at = shown.find("warning ", at)) != shown.npos; ++at)
    CHECK(shown.rfind('\n', at) + 20 > at);
}

TEST_CASE("a record of the log is one line and one write, and says who speaks") {
  Stderr out;
  for (const bool colour : {false, true}) {
    CAPTURE(colour);
    REQUIRE(init_log({"info", "worker-%n", colour}).ok());
    logger().debug("not asked for");
    logger().info("first");
    logger().warn("two\nlines\033[2J");
    logger().error("{}", std::string(100'000, 'x'));
    const auto writes = out.writes();
    REQUIRE(writes.size() == 3);
    for (const auto& line : writes) {
      CHECK(line.find('\n') == line.size() - 1);
      CHECK(line.size() <= PIPE_BUF);
      CHECK(line.find(" worker-%n: ") != line.npos);
      CHECK((line.find("\033[") != line.npos) == colour);
    }
    CHECK(writes[0].ends_with("worker-%n: first\n"));
    CHECK(writes[1].ends_with("worker-%n: two lines [2J\n"));
    CHECK(writes[2].ends_with("x...\n"));
  }
  REQUIRE(init_log({}).ok());
}

TEST_CASE("a level that there is not is an error") {
  const Status status = init_log({"shout", "", false});
  REQUIRE(!status.ok());
  CHECK(status.error().message.find("'shout'") != std::string::npos);
}

}  // namespace troupe
