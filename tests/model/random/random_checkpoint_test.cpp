#include "model/random/random_checkpoint.h"

#include <doctest/doctest.h>

#include <map>

#include "model/checkpoint.h"
#include "model/spec/read_spec.h"
#include "model/spec/sizes.h"
#include "model/weights.h"
#include "tests/model/model_folder.h"
#include "tests/source_path.h"

using namespace troupe;
using testing::read_file;
using testing::TemporaryFolder;

namespace {

const std::string kGolden = testing::source_path("tests/golden/");
const std::string kBench = testing::source_path("configs/bench/");

RandomCheckpointOptions of_golden(const std::string& name, const std::string& folder) {
  RandomCheckpointOptions options;
  options.config_file = kGolden + name + "/config.json";
  options.folder = folder;
  return options;
}

/// {name: bytes} of all files.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

/// Everything of it, packed: numbers that are none, scales that are no scales are errors.
void load_all(const std::string& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  REQUIRE_MESSAGE(checkpoint.ok(), checkpoint.error().message);
  const ModelSpec& spec = (*checkpoint)->spec();
  const auto goes_on = [] { return true; };
  const auto shard =
      load_shard(**checkpoint, Numerics::kReference, 0, spec.num_layers() - 1,
                 {.goes_on = goes_on});
  REQUIRE_MESSAGE(shard.ok(), shard.error().message);
  for (std::int32_t l = 0; l < spec.num_layers(); ++l) {
    if (!spec.layers[static_cast<std::size_t>(l)].has_experts()) continue;
    const auto expert = load_expert(**checkpoint, Numerics::kReference, l, 1, {.goes_on = goes_on});
    REQUIRE_MESSAGE(expert.ok(), expert.error().message);
  }
}

}  // namespace

TEST_CASE("random checkpoints of every family and format can be loaded") {
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    const TemporaryFolder folder;
    const auto made = write_random_checkpoint(of_golden(name, folder.string()));
    REQUIRE_MESSAGE(made.ok(), made.error().message);
    CHECK(made->files == 1);
    CHECK(made->bytes < std::filesystem::file_size(folder / "model.safetensors"));
    load_all(folder.string());
  }
}

TEST_CASE("a format replaces the config's own") {
  for (const auto format : {RandomFormat::kBf16, RandomFormat::kFp8, RandomFormat::kInt4}) {
    const TemporaryFolder folder;
    const auto made =
        write_random_checkpoint({kBench + "small-layers.json", folder.string(), format, 0, 1});
    REQUIRE_MESSAGE(made.ok(), made.error().message);
    load_all(folder.string());
    const auto checkpoint = Checkpoint::open(folder.string());
    const StoredFormat stored = (*checkpoint)->spec().layers.back().expert.front().format;
    CHECK(stored == (format == RandomFormat::kBf16  ? StoredFormat::kPlain
                     : format == RandomFormat::kFp8 ? StoredFormat::kFp8Blocks
                                                    : StoredFormat::kInt4Packed));
  }
}

TEST_CASE("the seed decides every byte, and the threads none") {
  const TemporaryFolder one, four, other;
  auto options = of_golden("v3", one.string());
  REQUIRE(write_random_checkpoint(options).ok());
  options.folder = four.string();
  options.threads = 4;
  REQUIRE(write_random_checkpoint(options).ok());
  options.folder = other.string();
  options.seed = 1;
  REQUIRE(write_random_checkpoint(options).ok());
  CHECK(files_of(one.string()) == files_of(four.string()));
  CHECK(files_of(one.string()) != files_of(other.string()));
}

TEST_CASE("what cannot be made is refused, and leaves nothing") {
  const TemporaryFolder folder;
  auto options = of_golden("v3", (folder / "new").string());
  REQUIRE(write_random_checkpoint(options).ok());
  const auto again = write_random_checkpoint(options);
  REQUIRE(!again.ok());
  CHECK(again.error().code == ErrorCode::kInvalidArgument);
  CHECK(again.error().message.find("holds something already") != std::string::npos);

  auto config = nlohmann::json::parse(read_file(options.config_file));
  config["moe_intermediate_size"] = 48;
  std::ofstream(folder / "config.json") << config;
  options = {folder / "config.json", folder / "ragged", RandomFormat::kInt4, 0, 1};
  const auto ragged = write_random_checkpoint(options);
  REQUIRE(!ragged.ok());
  CHECK(ragged.error().message.find("groups of 32 do not divide") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "ragged"));

  options.config_file = (folder / "none.json").string();
  CHECK(!write_random_checkpoint(options).ok());
}

TEST_CASE("the shapes that are measured have the sizes that are told") {
  const std::map<std::string, double> told = {
      {"v3-shaped", 2.45e9}, {"dense", 1.5e9}, {"v3-layer", 1.78e9}};
  for (const auto& [name, bytes] : told) {
    CAPTURE(name);
    const std::string file = kBench + name + ".json";
    const auto spec = parse_model_spec(read_file(file), file);
    REQUIRE_MESSAGE(spec.ok(), spec.error().message);
    CHECK(static_cast<double>(model_bytes(*spec, Numerics::kBf16)) ==
          doctest::Approx(bytes).epsilon(0.02));
  }
}
