// What stands behind --model, before anything is read.

#include "model/model_path.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "model/spec/read_spec.h"

namespace troupe {
namespace {

TEST_CASE("names of the hub are told from paths") {
  for (const char* name : {"deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-0.6B", "a/b", "a_1/b.c-d"})
    CHECK_MESSAGE(parse_hub_model(name), name);
  for (const char* path : {"", "/", "DeepSeek-V3", "/models/DeepSeek-V3", "./a", "../a", "a/",
                           "a/b/c", "~/a", "a/.b", "a b/c", "mod\xe9l/a", "a--b/c"})
    CHECK_MESSAGE(!parse_hub_model(path), path);
  for (const char* path : {"a/b@", "a/b@..", "a/b@../x", "a/b@x//z", "a/b@x/", "a/b@/x", "a/b@c@d",
                           "a@b/c"})
    CHECK_MESSAGE(!parse_hub_model(path), path);
  CHECK(parse_hub_model("a/b")->revision == "main");
  CHECK(parse_hub_model("a/b@refs/pr/1")->name == "a/b");
  CHECK(parse_hub_model("a/b@refs/pr/1")->revision == "refs/pr/1");
  const std::string folder = "model_path_test_folder";
  std::filesystem::create_directory(folder);
  CHECK(parse_hub_model(folder + "/DeepSek-V3"));
  // One that somebody misspelt behind a folder that is there.
  const Status there = check_model_path(folder + "/DeepSek-V3");
  std::filesystem::remove(folder);
  REQUIRE(!there.ok());
  CHECK(there.error().message ==
        folder + "/DeepSek-V3 cannot be opened: No such file or directory");
}

TEST_CASE("a snapshot in the hub's cache is told from other folders") {
  const std::string snapshot = "/cache/models--a.b--c-d/snapshots/0123456789";
  const std::string of_head = "/cache/models--a.b--c-d/head/snapshots/0123456789";
  for (const std::string& path :
       {snapshot, snapshot + "/", snapshot + "/x/y.safetensors", of_head, of_head + "/x"}) {
    REQUIRE(snapshot_model(path));
    CHECK(snapshot_model(path)->name == "a.b/c-d");
    CHECK(snapshot_model(path)->revision == "0123456789");
  }
  for (const char* path :
       {"", "/", "/models--a--b", "/models--a--b/snapshots", "/models--a--b/head/snapshots",
        "/a--b/snapshots/1", "/models--a/snapshots/1", "/models--a--b--c/snapshots/1",
        "/models--a--b/blobs/1", "/models--a--b/snapshots/a b"})
    CHECK_MESSAGE(!snapshot_model(path), path);
  const auto absent = load_model_spec(snapshot);
  REQUIRE(!absent);
  CHECK(absent.error().message.find("`troupe pull a.b/c-d@0123456789`") != std::string::npos);
  CHECK(pull_advice("/data/a.b/c-d").empty());
}

TEST_CASE("a model that is not there is told as what it is") {
  const auto hub = load_model_spec("deepseek-ai/DeepSeek-V3");
  REQUIRE(!hub);
  CHECK(hub.error().code == ErrorCode::kNotFound);
  CHECK(hub.error().message.find("`troupe pull deepseek-ai/DeepSeek-V3`") != std::string::npos);
  const auto folder = load_model_spec("/no/such/folder");
  REQUIRE(!folder);
  CHECK(folder.error().code == ErrorCode::kNotFound);
  CHECK(folder.error().message == "/no/such/folder cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace troupe
