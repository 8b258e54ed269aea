// Weights on their way into memory: what they prove, and what storage may do to them.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "model/file_error.h"
#include "model/tensor_hash.h"
#include "model/weights.h"
#include "runtime/limits.h"
#include "model/renewed.h"
#include "tests/model/model_folder.h"
#include "tests/model/must.h"
#include "tests/model/proofs_of.h"
#include "tests/model/pread_hook.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using testing::ModelFolder;
using testing::must;
using testing::proofs_of;
using testing::PreadHook;
using testing::source_path;

constexpr const char* kModel = "tests/golden/v2-lite";
const std::string kExpert = "model.layers.1.mlp.experts.2.";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Digest digest_of(std::string_view text) {
  Xxh3 hash;
  hash.add(bytes_of(text));
  return hash.digest();
}

const TensorProof& proof_of(const HeldTensors& tensors, const std::string& name) {
  for (const auto& tensor : tensors)
    if (tensor.proof.tensor == name) return tensor.proof;
  FAIL("no proof of " << name);
  std::abort();
}

std::string text_of(const Status& status) { return status ? "" : status.error().message; }
template <class T>
Error error_of(const Result<T>& result) {
  return result ? Error{ErrorCode::kInternal, "no error"} : result.error();
}

void check_says(const std::string& error, std::initializer_list<std::string> parts) {
  CAPTURE(error);
  for (const auto& part : parts) {
    CAPTURE(part);
    CHECK(error.find(part) != std::string::npos);
  }
}

// --- Proofs -------------------------------------------------------------------------------------

TEST_CASE("XXH3-128 is the published one") {
  CHECK(digest_of("") == Digest{0x6001c324468d497f, 0x99aa06d3014798d8});
}

TEST_CASE("which axis is split") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3-awq")));
  const std::string a = "model.layers.1.self_attn.", m = "model.layers.1.mlp.";
  const auto split = [&](const std::string& name) { return must(checkpoint->find(name)).split; };
  // AWQ lies the other way round: its outputs are columns.
  for (const auto& outputs : {a + "q_b_proj", a + "kv_b_proj", m + "experts.3.up_proj",
                              m + "shared_experts.gate_proj"})
    for (const char* part : {".qweight", ".qzeros", ".scales"})
      CHECK(split(outputs + part) == StoredAxis::kColumns);
  for (const auto& inputs : {a + "o_proj", m + "shared_experts.down_proj"})
    CHECK(split(inputs + ".qweight") == StoredAxis::kRows);
  CHECK(split("model.embed_tokens.weight") == StoredAxis::kRows);
  CHECK(split("lm_head.weight") == StoredAxis::kRows);
  for (const auto& none : {a + "q_a_proj.qweight", a + "kv_a_proj_with_mqa.qweight",
                           m + "gate.weight", m + "gate.e_score_correction_bias",
                           std::string("model.norm.weight")})
    CHECK(split(none) == StoredAxis::kNone);
  const auto plain = must(Checkpoint::open(source_path(kModel)));
  CHECK(must(plain->find(kExpert + "down_proj.weight")).split == StoredAxis::kColumns);
}

TEST_CASE("the eighths of rows, of columns, and what has none, however the bytes are cut") {
  std::string text;
  for (int i = 0; i < 16 * 24; ++i) text += static_cast<char>(i * 37 % 251);
  const auto digests = [&](std::vector<std::int64_t> shape, StoredAxis axis, std::size_t cut) {
    TensorHash hash({"x", DType::kU8, std::move(shape), nullptr, 0, text.size(), axis});
    for (std::size_t at = 0; at < text.size(); at += cut) hash.add(bytes_of(text.substr(at, cut)));
    return hash.digests();
  };
  for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, std::size_t{24}, text.size()}) {
    const auto rows = digests({16, 24}, StoredAxis::kRows, cut);
    const auto columns = digests({16, 24}, StoredAxis::kColumns, cut);
    REQUIRE(rows.size() == 8);
    REQUIRE(columns.size() == 8);
    for (std::size_t part = 0; part < 8; ++part) {
      CHECK(rows[part] == digest_of(text.substr(part * 48, 48)));
      std::string some;
      for (std::size_t row = 0; row < 16; ++row) some += text.substr(row * 24 + part * 3, 3);
      CHECK(columns[part] == digest_of(some));
    }
    CHECK(digests({12, 32}, StoredAxis::kRows, cut) == std::vector{digest_of(text)});
    CHECK(digests({32, 12}, StoredAxis::kColumns, cut) == std::vector{digest_of(text)});
    CHECK(digests({16, 24}, StoredAxis::kNone, cut) == std::vector{digest_of(text)});
  }
}

TEST_CASE("other bytes in one eighth show there, in the storage too") {
  const ModelFolder folder(source_path(kModel));
  const std::string name = kExpert + "up_proj.weight";
  const auto before = must(proofs_of(*must(Checkpoint::open(folder.string())), {&name, 1}));
  const std::uint64_t eighth = folder.bytes(name) / 8;
  folder.overwrite(folder.begin(name) + 3 * eighth, "\x3f");
  const auto after = must(Checkpoint::open(folder.string()));
  const auto fresh = must(proofs_of(*after, {&name, 1}));
  const auto loaded = must(load_expert(*after, Numerics::kReference, 1, 2));
  CHECK(proof_of(loaded->tensors, name).stored == fresh[0].stored);
  for (std::size_t part = 0; part < 8; ++part)
    CHECK((fresh[0].stored[part] == before[0].stored[part]) == (part != 3));
}

TEST_CASE("proofs of tensors that lie side by side take few reads, and stop at one that is bad") {
  const ModelFolder folder(source_path(kModel));
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  std::vector<std::string> names;
  for (const char* of : {"up", "gate", "down"}) names.push_back(kExpert + of + "_proj.weight");
  std::ranges::sort(names, {}, [&](const std::string& name) { return folder.begin(name); });
  int reads = 0;
  off_t bad = -1;
  const PreadHook hook([&](int, void*, std::size_t bytes, off_t from) -> ssize_t {
    ++reads;
    if (bad < from || bad >= from + static_cast<off_t>(bytes)) return -2;
    return errno = EIO, -1;
  });
  const std::vector<std::string> turned(names.rbegin(), names.rend());
  const auto proofs = must(proofs_of(*checkpoint, turned));
  CHECK(reads == 1);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(proofs[i].stored == must(proofs_of(*checkpoint, {&names[i], 1}))[0].stored);
  bad = static_cast<off_t>(folder.begin(names[2]) + folder.bytes(names[2]) - 1);
  std::vector<TensorProof> before;
  const Status read = read_proofs(*checkpoint, names, before);
  REQUIRE_FALSE(read.ok());
  check_says(read.error().message, {names[2], "Input/output error"});
  CHECK(before == std::vector(proofs.begin(), proofs.begin() + 2));
}

TEST_CASE("a proof that nobody wants any more is not read to its end") {
  const auto checkpoint = must(Checkpoint::open(source_path(kModel)));
  const std::vector<std::string> names = {"lm_head.weight"};
  const std::atomic<bool> cancelled{true};
  CHECK(error_of(proofs_of(*checkpoint, names, &cancelled)).code == ErrorCode::kCancelled);
  const std::vector<std::string> unknown = {"model.ghost"};
  CHECK(error_of(proofs_of(*checkpoint, unknown)).code == ErrorCode::kNotFound);
}

// --- NaN and infinities -------------------------------------------------------------------------

TEST_CASE("NaN and infinities are found wherever they are, and nothing else is") {
  const std::string name = kExpert + "down_proj.weight";
  for (const std::uint16_t bits : {0x7fc0, 0xffc1, 0x7f80, 0xff80, 0x7f81}) {
    for (const std::uint64_t element : {0ull, 1ull, 77ull, ~0ull}) {
      const ModelFolder folder(source_path(kModel));
      const std::uint64_t at = std::min(element, folder.bytes(name) / 2 - 1);
      folder.overwrite(folder.begin(name) + 2 * at,
                       {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)});
      const auto checkpoint = must(Checkpoint::open(folder.string()));
      const auto k = static_cast<std::uint64_t>(checkpoint->spec().layers[1].experts.inner);
      const Error error = error_of(load_expert(*checkpoint, Numerics::kReference, 1, 2));
      CHECK(error.code == ErrorCode::kCorrupt);
      check_says(error.message,
                 {folder.weights().string(), name, "NaN or an infinity",
                  "[" + std::to_string(at / k) + ", " + std::to_string(at % k) + "]",
                  "byte " + std::to_string(folder.begin(name) + 2 * at) + " of the file"});
      CHECK(load_expert(*checkpoint, Numerics::kReference, 1, 3).ok());
    }
  }
  // The largest finite numbers, zeros and denormals of both signs.
  for (const std::uint16_t bits : {0x7f7f, 0xff7f, 0x0000, 0x8000, 0x0001, 0x807f}) {
    const ModelFolder folder(source_path(kModel));
    folder.overwrite(folder.begin(name) + 6,
                     {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)});
    CHECK(load_expert(*must(Checkpoint::open(folder.string())), Numerics::kReference, 1, 2).ok());
  }
}

TEST_CASE("a NaN in a vector is found") {
  const ModelFolder folder(source_path(kModel));
  const std::string name = "model.norm.weight";
  folder.overwrite(folder.begin(name) + 2 * 5, "\xc0\x7f");
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  const auto last = checkpoint->spec().num_layers() - 1;
  check_says(error_of(load_shard(*checkpoint, Numerics::kReference, last, last)).message,
             {name, "at [5]"});
}

// --- Storage ------------------------------------------------------------------------------------

TEST_CASE("what the system says becomes a sentence, and says whether to try again here") {
  const auto code = [](int error) { return file_error("/m/x", "cannot be read", error).code; };
  for (const int error : {EINTR, EAGAIN, EMFILE, ENFILE, ENOMEM})
    CHECK(passing(code(error)));
  for (const int error : {EACCES, EPERM, EIO, ESTALE, ENOTDIR, ENOENT, ELOOP, ENOTCONN, EISDIR,
                          ETIMEDOUT, ENODEV})
    CHECK_FALSE(passing(code(error)));
  CHECK(code(ENOENT) == ErrorCode::kNotFound);
  check_says(file_error("/m/x", "cannot be read", EACCES).message,
             {"/m/x cannot be read: Permission denied; ", "read it"});
}

TEST_CASE("reads that are short or interrupted make no difference") {
  const auto checkpoint = must(Checkpoint::open(source_path(kModel)));
  const auto plain = must(load_expert(*checkpoint, Numerics::kReference, 1, 2));
  std::atomic<int> calls{0};
  const PreadHook hook([&](int fd, void* to, std::size_t bytes, off_t from) -> ssize_t {
    if (++calls % 3 == 0) return errno = EINTR, -1;
    if (bytes < 2) return -2;
    return ::pread(fd, to, 1, from) == 1 ? 1 : -1;
  });
  const auto slow = must(load_expert(*checkpoint, Numerics::kReference, 1, 2));
  CHECK(proof_of(slow->tensors, kExpert + "up_proj.weight") ==
        proof_of(plain->tensors, kExpert + "up_proj.weight"));
}

TEST_CASE("one block that cannot be read is an error of what lies there, and of nothing else") {
  const ModelFolder folder(source_path(kModel));
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  const std::string name = kExpert + "up_proj.weight";
  const auto bad = static_cast<off_t>(folder.begin(name) + 1000);
  const PreadHook hook([&](int, void*, std::size_t bytes, off_t from) -> ssize_t {
    if (from > bad || from + static_cast<off_t>(bytes) <= bad) return -2;
    return errno = EIO, -1;
  });
  const Error error = error_of(load_expert(*checkpoint, Numerics::kReference, 1, 2));
  CHECK(error.code == ErrorCode::kCorrupt);
  check_says(error.message, {folder.weights().string(), name, "at byte", "Input/output error"});
  CHECK(load_expert(*checkpoint, Numerics::kReference, 1, 3).ok());
  const std::vector<std::string> names = {name};
  check_says(error_of(proofs_of(*checkpoint, names)).message, {name, "Input/output error"});
  CHECK(checkpoint->trusted().ok());
  CHECK(must(renewed(checkpoint)).checkpoint == checkpoint);
}

TEST_CASE("a file that changes while it is read is an error, and is not trusted again") {
  const ModelFolder folder(source_path(kModel));
  const std::string whole = testing::read_file(folder.weights());
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  const std::string name = kExpert + "gate_proj.weight";
  std::string why;
  std::function<void()> change;
  SUBCASE("truncated in the middle of a tensor") {
    change = [&] { REQUIRE(::truncate(folder.weights().c_str(), 4096) == 0); };
    why = "has shrunk to 4096 bytes";
  }
  SUBCASE("rewritten in place with the same layout") {
    change = [&] {
      folder.overwrite(folder.begin(name), folder.stored(kExpert + "up_proj.weight"));
    };
    why = "has changed";
  }
  SUBCASE("replaced by rename") {
    change = [&] {
      std::ofstream(folder / "new", std::ios::binary) << whole;
      fs::rename(folder / "new", folder.weights());
    };
    why = "has changed";
  }
  std::atomic<bool> changed{false};
  {
    const PreadHook hook([&](int, void*, std::size_t, off_t from) -> ssize_t {
      if (from >= static_cast<off_t>(folder.begin(name)) && !changed.exchange(true)) change();
      return -2;
    });
    const Error error = error_of(load_expert(*checkpoint, Numerics::kReference, 1, 2));
    CHECK(error.code == ErrorCode::kCorrupt);
    check_says(error.message, {"model.safetensors", kExpert, why});
  }
  REQUIRE(changed);
  // Whatever it looks like later.
  std::ofstream(folder.weights(), std::ios::binary) << whole;
  check_says(error_of(load_expert(*checkpoint, Numerics::kReference, 1, 3)).message, {why});
  check_says(text_of(checkpoint->trusted()), {why, kExpert});
  // But when it is opened afresh.
  const auto fresh = must(renewed(checkpoint));
  check_says(fresh.why, {why});
  CHECK(load_expert(*fresh.checkpoint, Numerics::kReference, 1, 3).ok());
}

TEST_CASE("a file that is gone for a while is read when it is back as it was") {
  const ModelFolder folder(source_path(kModel));
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  fs::rename(folder.weights(), folder / "away");
  const Error error = error_of(load_expert(*checkpoint, Numerics::kReference, 1, 2));
  CHECK(error.code == ErrorCode::kNotFound);
  check_says(error.message, {"model.safetensors", "is not there any more"});
  fs::rename(folder / "away", folder.weights());
  CHECK(load_expert(*checkpoint, Numerics::kReference, 1, 2).ok());
}

TEST_CASE("a folder that is none, and a part of it that is none") {
  const ModelFolder folder(source_path(kModel));
  const Error part = error_of(Checkpoint::open((folder / "config.json" / "model").string()));
  CHECK(part.code == ErrorCode::kNotFound);
  check_says(part.message, {"Not a directory", "no folder"});
  const Error text = error_of(Checkpoint::open((folder / "config.json").string()));
  CHECK(text.code == ErrorCode::kCorrupt);
  check_says(text.message, {"config.json", "should begin with \"GGUF\"", "folder"});
}

// --- Large ones ---------------------------------------------------------------------------------

double processor_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// A parser that is quadratic in the tensors takes twenty seconds, and far more when sanitised.
#ifdef __SANITIZE_ADDRESS__
constexpr double kLargeHeaderS = 10;
#else
constexpr double kLargeHeaderS = 1;
#endif

TEST_CASE("a header of 45,000 tensors takes well under a second") {
  std::string text = "{";
  for (int i = 0; i < 45'395; ++i)
    text += (i ? ",\"" : "\"") + kExpert + std::to_string(i) +
            R"(.weight":{"dtype":"BF16","shape":[2,4],"data_offsets":[)" + std::to_string(16 * i) +
            "," + std::to_string(16 * i + 16) + "]}";
  text += "}";
  std::string head(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(head.data(), &length, 8);
  head += text;
  const double before = processor_s();
  const auto header =
      must(parse_safetensors_header(bytes_of(head), head.size() + 16 * 45'395, "big"));
  CHECK(processor_s() - before < kLargeHeaderS);
  CHECK(header.tensors.size() == 45'395);
}

}  // namespace
}  // namespace troupe
