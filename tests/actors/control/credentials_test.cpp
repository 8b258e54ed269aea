#include "actors/control/credentials.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "actors/control/frame_reader.h"
#include "actors/control/pem.h"
#include "tests/actors/control/support.h"

using namespace troupe;
namespace fs = std::filesystem;

namespace {

/// A folder of its own, gone at the end.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
};

unsigned mode_of(const fs::path& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

JoinFile sample() { return {{"10.0.0.1:6379", "[::1]:7000"}, own_credentials().worker}; }

}  // namespace

TEST_CASE("credentials are made once, for their owner only") {
  const Folder folder;
  const fs::path state = folder.path / "deep" / "state";
  const auto first = load_or_create(state);
  REQUIRE_MESSAGE(first.ok(), first.error().message);
  CHECK(mode_of(state) == 0700);
  CHECK(mode_of(state / "credentials.pem") == 0600);
  CHECK(control::check_credentials(first->head).ok());
  CHECK(control::check_credentials(first->worker).ok());
  const auto second = load_or_create(state);
  REQUIRE(second.ok());
  CHECK(second->head.private_key == first->head.private_key);
  CHECK(std::distance(fs::directory_iterator(state), {}) == 1);
}

TEST_CASE("credentials hold for machines whose clocks are hours off") {
  const Folder folder;
  const auto made = load_or_create(folder.path);
  REQUIRE(made.ok());
  for (const std::string* pem :
       {&made->head.ca_certificate, &made->head.certificate, &made->worker.certificate}) {
    const auto certificate = control::read_certificate(*pem);
    REQUIRE(certificate);
    for (const int hours : {-20, 0, 20}) {
      std::time_t there = std::time(nullptr) + hours * 3600;
      CHECK(X509_cmp_time(X509_get0_notBefore(certificate.get()), &there) < 0);
      CHECK(X509_cmp_time(X509_get0_notAfter(certificate.get()), &there) > 0);
    }
  }
}

TEST_CASE("heads that start at once agree") {
  const Folder folder;
  std::vector<std::string> keys(4);
  std::vector<std::thread> heads;
  for (auto& key : keys)
    heads.emplace_back([&] {
      const auto made = load_or_create(folder.path / "state");
      if (made.ok()) key = made->head.private_key;
    });
  for (auto& head : heads) head.join();
  CHECK(keys[0] != "");
  for (const auto& key : keys) CHECK(key == keys[0]);
}

TEST_CASE("what is revoked is kept, over a renewal too, and is names of certificates") {
  auto made = make_cluster_credentials();
  REQUIRE(made.ok());
  made->head.revoked = {"00ab34c2d5e6f718", *certificate_name(made->worker.certificate)};
  const auto next = renew_cluster_credentials(*made, {}, 3600);
  REQUIRE(next.ok());
  CHECK(next->head.revoked == made->head.revoked);
  // Copies of an older join file are cut off with the newest, and the other way round.
  CHECK(*certificate_name(next->worker.certificate) == made->head.revoked[1]);
  const auto other = renew_cluster_credentials(*made, {.renames = true}, 3600);
  REQUIRE(other.ok());
  CHECK(*certificate_name(other->worker.certificate) != made->head.revoked[1]);
  const std::string text = format_cluster_credentials(*next);
  const auto read = parse_cluster_credentials(text);
  REQUIRE(read.ok());
  CHECK(*read == *next);
  for (const char* wrong : {"revoked", "revoked 00ab", "revoked 00AB34C2D5E6F718",
                            "revoked 00ab34c2d5e6f7181"})
    CHECK(parse_cluster_credentials(text + wrong + "\n").error().code == ErrorCode::kCorrupt);
  std::string many = text;
  for (std::size_t i = 0; i < kRevokedMax; ++i) many += "revoked 00ab34c2d5e6f718\n";
  CHECK(parse_cluster_credentials(many).error().code == ErrorCode::kCorrupt);
}

TEST_CASE("damaged credentials are an error that names the file") {
  const Folder folder;
  REQUIRE(load_or_create(folder.path).ok());
  const fs::path file = folder.path / "credentials.pem";
  fs::resize_file(file, fs::file_size(file) / 2);
  const auto loaded = load_or_create(folder.path);
  REQUIRE(!loaded.ok());
  CHECK(loaded.error().code == ErrorCode::kCorrupt);
  CHECK(loaded.error().message.find(file.string()) != std::string::npos);
  write(file, "");
  CHECK(load_or_create(folder.path).error().code == ErrorCode::kCorrupt);
  write(folder.path / "plain", "x");
  CHECK(!load_or_create(folder.path / "plain").ok());
}

TEST_CASE("a join file reads as it was written") {
  const Folder folder;
  const fs::path path = folder.path / "join";
  REQUIRE(write_join_file(path, sample()).ok());
  REQUIRE(write_join_file(path, sample()).ok());
  CHECK(mode_of(path) == 0600);
  const auto read = read_join_file(path);
  REQUIRE_MESSAGE(read.ok(), read.error().message);
  CHECK(read->heads == sample().heads);
  CHECK(read->worker.private_key == sample().worker.private_key);
  CHECK(control::check_credentials(read->worker).ok());
}

TEST_CASE("a bad join file is a clear error") {
  const Folder folder;
  const auto missing = read_join_file(folder.path / "none");
  CHECK(missing.error().code == ErrorCode::kNotFound);
  CHECK(missing.error().message.find("--join") != std::string::npos);
  CHECK(!read_join_file(folder.path).ok());

  const std::string good = format_join_file(sample());
  CHECK(parse_join_file(good, "j").ok());
  CHECK(parse_join_file("# made by hand\n", "j").error().code == ErrorCode::kCorrupt);
  CHECK(!parse_join_file(std::string(100000, '\n'), "j").ok());
  JoinFile headless = sample(), nowhere = sample(), mixed = sample();
  headless.heads.clear();
  nowhere.heads = {"host:99999"};
  mixed.worker.certificate = foreign_credentials().worker.certificate;
  for (const JoinFile& join : {headless, nowhere, mixed})
    CHECK(!parse_join_file(format_join_file(join), "j").ok());

  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text = good.substr(0, 1 + random() % good.size());
    text[random() % text.size()] ^= static_cast<char>(1 << random() % 7);
    const auto parsed = parse_join_file(text, "j");
    if (!parsed.ok()) CHECK(parsed.error().message.starts_with("The join file j "));
  }
}

TEST_CASE("addresses") {
  struct Row {
    const char* text;
    const char* host;
    int port;
  };
  for (const Row& row : std::vector<Row>{{"host:1", "host", 1},
                                         {"host", "host", 6379},
                                         {"10.0.0.1:65535", "10.0.0.1", 65535},
                                         {"[::1]:80", "::1", 80},
                                         {"::1", "::1", 6379},
                                         {"[fe80::1%eth0]", "fe80::1%eth0", 6379}}) {
    const auto parsed = parse_host_port(row.text);
    REQUIRE_MESSAGE(parsed.ok(), row.text);
    CHECK(*parsed == HostPort{row.host, static_cast<std::uint16_t>(row.port)});
    CHECK(*parse_host_port(to_string(*parsed)) == *parsed);
  }
  for (const char* text : {"", ":1", "host:", "host:x", "host:65536", "host:-1", "[::1", "[]:1",
                           "a b:1", "[::1]x", "host:1 "})
    CHECK_MESSAGE(!parse_host_port(text).ok(), text);
}

TEST_CASE("frames are cut wherever the stream is") {
  std::vector<std::byte> stream;
  for (const std::size_t length : {1, 3, 300, 70000}) {
    const auto header = control::frame_header(length);
    stream.insert(stream.end(), header.begin(), header.end());
    stream.resize(stream.size() + length, static_cast<std::byte>(length));
  }
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    control::FrameReader reader(70000);
    std::vector<std::vector<std::byte>> frames;
    for (std::size_t at = 0; at < stream.size(); at += step)
      REQUIRE(reader.feed(std::span(stream).subspan(at, std::min(step, stream.size() - at)), frames)
                  .ok());
    REQUIRE(frames.size() == 4);
    CHECK(frames[3] == std::vector<std::byte>(70000, static_cast<std::byte>(70000)));
  }
  control::FrameReader reader(100);
  std::vector<std::vector<std::byte>> frames;
  CHECK(!reader.feed(control::frame_header(101), frames).ok());
}
