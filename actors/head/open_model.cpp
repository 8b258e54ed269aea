#include "actors/head/open_model.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "runtime/limits.h"
#include "runtime/xxh3.h"
#include "transport/utf8.h"

namespace troupe {
namespace {

constexpr std::size_t kNamesShown = 3;

Status check_name(const std::string& flag, const std::string& name) {
  if (!transport::is_utf8(name) || name.find('\0') != name.npos)
    return invalid_argument(flag + " must be UTF-8 text, and '" +
                            transport::repair_utf8(name, 256) + "' is not; rename it.");
  if (name.size() > limits::kNameBytesMax)
    return invalid_argument(flag + " may have at most " + std::to_string(limits::kNameBytesMax) +
                            " bytes, not " + std::to_string(name.size()) + ".");
  return {};
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> open_model(const EngineOptions& engine,
                                                     CheckpointUse use) {
  const std::string path = std::filesystem::absolute(engine.model).string();
  if (const Status named = check_name("--model", path); !named.ok()) return named.error();
  if (const Status named = check_name("--served-model-name", engine.served_model_name);
      !named.ok())
    return named.error();
  return Checkpoint::open(engine.model, use);
}

EngineOptions resolved(EngineOptions engine, const ModelFrontend& frontend) {
  engine.max_model_len = frontend.max_model_len();
  engine.served_model_name = frontend.served_model_name();
  return engine;
}

std::string left_out_text(const Checkpoint& checkpoint) {
  const auto& names = checkpoint.left_out();
  if (names.empty()) return {};
  std::string text = "left out of the checkpoint, since no weight needs it: ";
  const std::size_t shown = std::min(names.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i)
    text += (i ? ", " : "") + transport::repair_utf8(names[i], 256);
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::uint64_t place_of(const std::string& folder) {
  std::error_code error;
  const std::string place = std::filesystem::canonical(folder, error).string();
  return xxh3_64(place.data(), place.size());
}

std::string journal_model(const EngineOptions& engine, const Checkpoint& checkpoint) {
  return checkpoint.hash() + "-" + std::to_string(place_of(engine.model));
}

}  // namespace troupe
