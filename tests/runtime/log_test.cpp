#include "runtime/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace troupe {
namespace {

/// Standard error as a pipe that keeps writes apart: one read gives one write.
class Stderr {
 public:
  Stderr() : before_(dup(STDERR_FILENO)) {
    REQUIRE(pipe2(ends_.data(), O_DIRECT | O_NONBLOCK | O_CLOEXEC) == 0);
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

}  // namespace

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
