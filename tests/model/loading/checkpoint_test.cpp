// Checkpoint folders: good ones, and every way in which one can be broken.

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/checkpoint.h"
#include "model/weight_file.h"
#include "model/weights.h"
#include "runtime/numerics.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::must;
using testing::source_path;

constexpr const char* kV3 = "tests/golden/v3";
constexpr const char* kV2 = "tests/golden/v2-lite";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A copy of a golden folder that a test may break.
class Folder {
 public:
  explicit Folder(const char* model) {
    std::string name = (fs::temp_directory_path() / "troupe-checkpoint-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const auto& entry : fs::directory_iterator(source_path(model)))
      write(path_ / entry.path().filename(), read(entry.path()));
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

  /// Changes the JSON of a safetensors header, keeping the data.
  void edit_header(const char* file, const std::function<void(json&)>& edit) const {
    const std::string bytes = read(path_ / file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    json header = json::parse(bytes.substr(8, length));
    edit(header);
    put_header(file, header.dump(), bytes.substr(8 + length));
  }
  void put_header(const char* file, const std::string& header, const std::string& data) const {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    write(path_ / file, bytes + header + data);
  }
  std::string error() const {
    const auto opened = Checkpoint::open(string());
    return opened ? "" : opened.error().message;
  }

 private:
  fs::path path_;
};

void check_says(const std::string& error, std::initializer_list<const char*> parts) {
  CAPTURE(error);
  for (const char* part : parts) {
    CAPTURE(std::string(part));
    CHECK(error.find(part) != std::string::npos);
  }
}

TEST_CASE("a folder with an index, with one file and with several files without index") {
  const auto indexed = must(Checkpoint::open(source_path(kV3)));
  CHECK(indexed->hash().size() == 64);
  CHECK(indexed->has("model.embed_tokens.weight"));
  CHECK(indexed->bytes_read() == 0);
  const auto single = must(Checkpoint::open(source_path(kV2)));
  CHECK(single->hash() != indexed->hash());

  Folder folder(kV3);
  fs::remove(folder / kIndex);
  const auto several = must(Checkpoint::open(folder.string()));
  CHECK(several->names() == indexed->names());
  CHECK(several->hash() == indexed->hash());
}

TEST_CASE("the hash tells configs and headers apart") {
  const auto original = must(Checkpoint::open(source_path(kV2)))->hash();
  Folder folder(kV2);
  auto config = json::parse(read(folder / "config.json"));
  config["rms_norm_eps"] = 1e-5;
  write(folder / "config.json", config.dump());
  const auto changed = must(Checkpoint::open(folder.string()))->hash();
  CHECK(changed != original);
  // Written otherwise, by another program, it is the same.
  config["transformers_version"] = "9.9";
  write(folder / "config.json", config.dump(4));
  CHECK(must(Checkpoint::open(folder.string()))->hash() == changed);
  folder.edit_header("model.safetensors", [](json& h) { h["__metadata__"]["note"] = "x"; });
  CHECK(must(Checkpoint::open(folder.string()))->hash() != changed);
}

TEST_CASE("links of Hugging Face's cache are followed") {
  Folder folder(kV2), blobs(kV2);
  fs::remove(folder / "model.safetensors");
  fs::create_symlink(blobs / "model.safetensors", folder / "model.safetensors");
  CHECK(folder.error() == "");
}

TEST_CASE("broken folders") {
  Folder folder(kV3);
  SUBCASE("no config") {
    fs::remove(folder / "config.json");
    check_says(folder.error(), {"neither a config.json nor a GGUF file"});
  }
  SUBCASE("config is a folder") {
    fs::remove(folder / "config.json");
    fs::create_directory(folder / "config.json");
    check_says(folder.error(), {"config.json", "regular file"});
  }
  SUBCASE("no weights") {
    for (const char* name : {kFirst, kSecond, kIndex}) fs::remove(folder / name);
    check_says(folder.error(), {"no *.safetensors"});
  }
  SUBCASE("a file of the index is missing") {
    fs::remove(folder / kSecond);
    check_says(folder.error(), {kSecond, "No such file"});
  }
  SUBCASE("a loop of links") {
    fs::remove(folder / kSecond);
    fs::create_symlink(kSecond, folder / kSecond);
    check_says(folder.error(), {kSecond, "symbolic links"});
  }
  SUBCASE("a FIFO in place of a file") {
    fs::remove(folder / kSecond);
    REQUIRE(::mkfifo((folder / kSecond).c_str(), 0600) == 0);
    check_says(folder.error(), {kSecond, "regular file"});
  }
  SUBCASE("an unreadable file") {
    fs::permissions(folder / kSecond, fs::perms::none);
    // Root reads everything. To return here would keep the cases below from being met.
    if (::geteuid() != 0) check_says(folder.error(), {kSecond, "Permission denied"});
  }
  SUBCASE("truncated in its data") {
    const auto bytes = read(folder / kFirst);
    write(folder / kFirst, bytes.substr(0, bytes.size() - 1));
    check_says(folder.error(), {kFirst, "tensor", "should end at byte", "truncated"});
  }
  SUBCASE("truncated in its header") {
    write(folder / kFirst, read(folder / kFirst).substr(0, 100));
    check_says(folder.error(), {kFirst, "claims a header of", "truncated"});
  }
  SUBCASE("a pointer of Git LFS in place of a file") {
    write(folder / kFirst,
          "version https://git-lfs.github.com/spec/v1\n"
          "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
          "size 12345\n");
    check_says(folder.error(), {kFirst, "a pointer of Git LFS", "`git lfs pull`"});
  }
  SUBCASE("empty") {
    write(folder / kFirst, "");
    check_says(folder.error(), {kFirst, "has 0 bytes"});
  }
  SUBCASE("a header beyond the file") {
    auto bytes = read(folder / kFirst);
    std::memset(bytes.data(), 0xff, 8);
    write(folder / kFirst, bytes);
    check_says(folder.error(), {kFirst, "claims a header of 18446744073709551615"});
  }
  SUBCASE("a longer file") {
    write(folder / kFirst, read(folder / kFirst) + "xyz");
    check_says(folder.error(), {kFirst, "3 bytes after its last tensor"});
  }
  SUBCASE("a tensor in both files, and no index to say which") {
    fs::remove(folder / kIndex);
    folder.edit_header(kFirst, [&](json& h) {
      h["model.norm.weight"] = {{"dtype", "BF16"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
    });
    check_says(folder.error(), {"model.norm.weight", kFirst, kSecond, "one file only"});
  }
}

TEST_CASE("broken indexes") {
  Folder folder(kV3);
  auto index = json::parse(read(folder / kIndex));
  auto& map = index["weight_map"];
  SUBCASE("no JSON") {
    write(folder / kIndex, "{");
    check_says(folder.error(), {kIndex, "not valid JSON"});
  }
  SUBCASE("no map") {
    write(folder / kIndex, "{}");
    check_says(folder.error(), {kIndex, "weight_map"});
  }
  for (const char* outside : {"../model.safetensors", "/etc/passwd", "..", "a/b.safetensors", ""}) {
    CAPTURE(std::string(outside));
    SUBCASE(outside) {
      map["model.norm.weight"] = outside;
      write(folder / kIndex, index.dump());
      check_says(folder.error(), {kIndex, "model.norm.weight", "of the same folder"});
    }
  }
  SUBCASE("no string") {
    map["model.norm.weight"] = 3;
    write(folder / kIndex, index.dump());
    check_says(folder.error(), {kIndex, "model.norm.weight"});
  }
  SUBCASE("the wrong file") {
    map["model.norm.weight"] = kFirst;
    write(folder / kIndex, index.dump());
    check_says(folder.error(),
               {kIndex, "model.norm.weight", "should be in", kFirst, "but is not there"});
  }
  SUBCASE("a file that is not there, for a tensor that a weight needs") {
    map["model.norm.weight"] = "model-overlay.safetensors";
    write(folder / kIndex, index.dump());
    check_says(folder.error(),
               {"model-overlay.safetensors cannot be opened", "model.norm.weight", "No such file"});
  }
}

/// A safetensors file with one tensor of zeros.
std::string zeros(const char* name, std::int64_t numbers) {
  const auto bytes = static_cast<std::size_t>(numbers) * 2;
  const std::string header =
      json{{name, {{"dtype", "BF16"}, {"shape", {numbers}}, {"data_offsets", {0, bytes}}}}}.dump();
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(bytes, '\0');
}

TEST_CASE("the index decides which file a tensor is in, and what no weight needs is left out") {
  Folder folder(kV3);
  const auto original = must(Checkpoint::open(folder.string()));
  CHECK(original->left_out().empty());
  const std::int64_t hidden = original->spec().hidden;
  auto index = json::parse(read(folder / kIndex));
  auto& map = index["weight_map"];
  const auto opened = [&] {
    write(folder / kIndex, index.dump());
    return must(Checkpoint::open(folder.string()));
  };
  SUBCASE("an overlay in place of a stale copy") {
    write(folder / "overlay.safetensors", zeros("model.norm.weight", hidden));
    map["model.norm.weight"] = "overlay.safetensors";
    const auto overlaid = opened();
    CHECK(must(overlaid->find("model.norm.weight")).file->name() == "overlay.safetensors");
    const std::string stale = "model.norm.weight of " + std::string(kSecond);
    CHECK(overlaid->left_out() == std::vector<std::string>{stale});
    CHECK(overlaid->hash() != original->hash());
  }
  SUBCASE("entries that nobody needs, for files that are there and that are not") {
    map["ghost"] = kFirst;
    map["visual.patch.weight"] = "gone.safetensors";
    CHECK(opened()->left_out() == std::vector<std::string>{"ghost", "visual.patch.weight"});
    CHECK(opened()->hash() == original->hash());
  }
  SUBCASE("files beside") {
    write(folder / "adapter_model.safetensors", "no such file at all");
    CHECK(opened()->left_out() == std::vector<std::string>{"adapter_model.safetensors"});
    CHECK(opened()->hash() == original->hash());
    // The parts name themselves where there is no index.
    fs::remove(folder / kIndex);
    CHECK(must(Checkpoint::open(folder.string()))->hash() == original->hash());
  }
}

TEST_CASE("without an index model.safetensors is the checkpoint, whatever lies beside it") {
  Folder folder(kV2);
  const auto original = must(Checkpoint::open(folder.string()));
  write(folder / "model-backup.safetensors", read(folder / "model.safetensors"));
  const std::vector<std::string> backup = {"model-backup.safetensors"};
  CHECK(must(Checkpoint::open(folder.string()))->left_out() == backup);
  // An index of files none of which is there is another checkpoint's.
  write(folder / kIndex, R"({"weight_map": {"model.norm.weight": "model-1-of-2.safetensors"}})");
  CHECK(must(Checkpoint::open(folder.string()))->hash() == original->hash());
}

TEST_CASE("what a file is called is no part of what it is") {
  Folder folder(kV2);
  const auto hash = must(Checkpoint::open(folder.string()))->hash();
  fs::rename(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors");
  CHECK(must(Checkpoint::open(folder.string()))->hash() == hash);
}

TEST_CASE("broken headers") {
  Folder folder(kV2);
  constexpr const char* kFile = "model.safetensors";
  constexpr const char* kName = "model.norm.weight";
  const std::string bytes = read(folder / kFile);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const std::string text = bytes.substr(8, length), data = bytes.substr(8 + length);

  auto edited = [&](const std::function<void(json&)>& edit) {
    folder.edit_header(kFile, [&](json& h) { edit(h[kName]); });
    return folder.error();
  };
  auto offsets = json::parse(text)[kName]["data_offsets"].get<std::vector<std::uint64_t>>();
  const auto begin = offsets[0], end = offsets[1];
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

  SUBCASE("dtypes, shapes and offsets") {
    check_says(edited([](json& t) { t["dtype"] = "F32"; }), {kFile, kName, "take 512"});
    check_says(edited([](json& t) { t["dtype"] = "Q4"; }), {kFile, kName, "'Q4'"});
    check_says(edited([](json& t) { t["dtype"] = 4; }), {kFile, kName, "dtype"});
    check_says(edited([](json& t) { t["dtype"] = "BF16", t["shape"] = {-1}; }),
               {kFile, kName, "shape"});
    check_says(edited([](json& t) {
                 t["shape"] = {1u << 31, 1u << 31, 1u << 31};
               }),
               {kFile, kName, "more than 2^64"});
    check_says(edited([](json& t) { t["shape"] = "x"; }), {kFile, kName, "shape"});
    check_says(edited([](json& t) {
                 t["shape"] = {64, 2};
               }),
               {kFile, kName, "should have shape [128], but has [64, 2]"});
    check_says(edited([&](json& t) {
                 t["shape"] = {128}, t["data_offsets"] = {end, begin};
               }),
               {kFile, kName, "before it begins"});
    check_says(edited([&](json& t) { t["data_offsets"] = {huge - 255, huge}; }), {kFile, kName});
    check_says(edited([&](json& t) {
                 t["data_offsets"] = {begin + 2, end + 2};
               }),
               {kFile, "tensor"});
    check_says(edited([&](json& t) { t["data_offsets"] = {0, end - begin}; }), {kFile, "overlaps"});
    check_says(edited([&](json& t) {
                 t["data_offsets"] = {-1, 4};
               }),
               {kFile, kName, "data_offsets"});
    check_says(edited([&](json& t) { t["data_offsets"] = {1}; }), {kFile, kName, "data_offsets"});
    check_says(edited([](json& t) { t = 3; }), {kFile, kName, "JSON object"});
  }
  SUBCASE("another type of the right size") {
    folder.edit_header(kFile, [&](json& h) { h[kName]["dtype"] = "I16"; });
    check_says(folder.error(), {kFile, kName, "should have dtype BF16 or F32 or F16, but has I16"});
  }
  SUBCASE("a missing tensor") {
    folder.edit_header(kFile, [&](json& h) {
      h["model.other.weight"] = h[kName];
      h.erase(kName);
    });
    check_says(folder.error(), {"lacks the tensor", kName, "[128]"});
  }
  SUBCASE("a tensor twice") {
    const std::string entry = json::parse(text)[kName].dump();
    folder.put_header(kFile, "{\"" + std::string(kName) + "\":" + entry + "," + text.substr(1),
                      data);
    check_says(folder.error(), {kFile, kName, "twice"});
  }
  SUBCASE("nested deep") {
    folder.put_header(kFile, std::string(100000, '['), data);
    check_says(folder.error(), {kFile, "nests"});
  }
  SUBCASE("no object") {
    folder.put_header(kFile, "[]", data);
    check_says(folder.error(), {kFile, "JSON object"});
  }
  SUBCASE("random bytes") {
    folder.put_header(kFile, std::string("\x00\xff\x13\x37", 4), data);
    check_says(folder.error(), {kFile, "not valid JSON"});
  }
}

TEST_CASE("a file that shrinks after it was opened is an error, not a crash") {
  Folder folder(kV2);
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  REQUIRE(::truncate((folder / "model.safetensors").c_str(), 4096) == 0);
  const auto shard = load_shard(*checkpoint, Numerics::kReference, 0, 2);
  REQUIRE_FALSE(shard.ok());
  check_says(shard.error().message, {"model.safetensors", "has shrunk to 4096"});
}

TEST_CASE("each tensor is read once, and none that is not placed here") {
  const auto checkpoint = must(Checkpoint::open(source_path(kV3)));
  const ModelSpec& spec = checkpoint->spec();
  const auto second = must(load_shard(*checkpoint, Numerics::kReference, 1, 3));
  CHECK(checkpoint->reads("model.embed_tokens.weight") == 0);
  CHECK(checkpoint->reads("model.layers.0.self_attn.o_proj.weight") == 0);
  CHECK(checkpoint->reads("model.layers.1.self_attn.kv_b_proj.weight") == 1);
  CHECK(checkpoint->reads("model.layers.1.mlp.experts.0.up_proj.weight") == 0);
  const auto expert = must(load_expert(*checkpoint, Numerics::kReference, 2, 5));
  CHECK(checkpoint->reads("model.layers.2.mlp.experts.5.up_proj.weight") == 1);
  CHECK(checkpoint->reads("model.layers.2.mlp.experts.4.up_proj.weight") == 0);

  const auto first = must(load_shard(*checkpoint, Numerics::kReference, 0, 0));
  for (std::int32_t layer = 1; layer < spec.num_layers(); ++layer)
    for (std::int32_t e = 0; e < spec.num_experts(); ++e)
      if (layer != 2 || e != 5)
        REQUIRE(load_expert(*checkpoint, Numerics::kReference, layer, e).ok());
  std::uint64_t read_once = 0;
  for (const auto& name : checkpoint->names()) {
    const bool mtp = name.starts_with("model.layers.4.");
    CAPTURE(name);
    CHECK(checkpoint->reads(name) == (mtp ? 0 : 1));
    if (!mtp) ++read_once;
  }
  CHECK(read_once > 100);
}

TEST_CASE("asking for layers and experts that do not exist") {
  const auto checkpoint = must(Checkpoint::open(source_path(kV3)));
  for (const auto& [first, last] : {std::pair{-1, 2}, {3, 2}, {3, 4}, {3, 1}})
    CHECK_FALSE(load_shard(*checkpoint, Numerics::kReference, first, last).ok());
  for (const auto& [layer, expert] : {std::pair{0, 0}, {1, 16}, {1, -1}, {4, 0}, {-1, 0}})
    CHECK_FALSE(load_expert(*checkpoint, Numerics::kReference, layer, expert).ok());
}

}  // namespace
}  // namespace troupe
