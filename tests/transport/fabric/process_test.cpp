#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/promises.h"
#include "tests/transport/fabric/support.h"

namespace troupe::transport::testing {
namespace {

/// A node in a process of its own; killed at the end if it still runs.
class Child {
 public:
  explicit Child(const std::function<void(int out)>& body) {
    int from[2];
    REQUIRE(pipe2(from, O_CLOEXEC) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      close(from[0]);
      alarm(5 * 60);
      body(from[1]);
      _exit(0);
    }
    close(from[1]);
    out_ = from[0];
  }
  ~Child() {
    kill();
    close(out_);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string hear() { return read_line(out_); }

  static std::string read_line(int fd) {
    std::string line;
    for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

TEST_CASE("a peer killed with SIGKILL is noticed at once, under load") {
  Child child([](int out) {
    Recorder events;
    FabricOptions options;
    options.self = key(2);
    auto fabric = make_libfabric(options, events);
    if (!fabric || !(*fabric)->expect(key(1), kAt, token(1)).ok()) return;
    const std::string line = (*fabric)->address() + "\n";
    if (write(out, line.data(), line.size()) < 0 || !events.wait_up(key(1))) return;
    // Both directions are busy until the end comes.
    for (;;) {
      (void)(*fabric)->send(key(1), frame(8, 100'000, 1));
      events.take_frames(key(1));
      usleep(100);
    }
  });
  const std::string address = child.hear();
  REQUIRE_FALSE(address.empty());
  Node a(1);
  REQUIRE(a.fabric->connect(key(2), address, token(1)).ok());
  REQUIRE(a.events.wait_up(key(2)));
  REQUIRE(a.events.wait_frames(key(2), 10));
  for (int i = 0; i < 20; ++i) REQUIRE(a.fabric->send(key(2), frame(8, 1 << 20, 1)).ok());
  // Counted from the process's end: a loaded machine takes its time to end one.
  child.kill();
  const auto start = now();
  REQUIRE(a.events.wait_down(key(2)));
  promised("a peer that is killed is noticed", now() - start, 50ms);
  const auto status = a.fabric->send(key(2), frame(1, 1, 1));
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kUnavailable);
  CHECK(eventually([&] { return a.fabric->stats().bytes_unsent == 0; }));
}

}  // namespace
}  // namespace troupe::transport::testing
