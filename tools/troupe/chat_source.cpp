#include "tools/troupe/chat_source.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "actors/frontend/model_frontend.h"
#include "model/chat/reasoning_name.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {
namespace {

using nlohmann::json;

// A head of another version may say less.

const json& member(const json& object, const char* name) {
  static const json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string text(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

Result<ChatSource> connect_source(const std::string& state_dir) {
  const auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto cluster = Cluster::connect(*join, std::chrono::seconds(2));
  if (!cluster.ok()) return no_head(cluster.error(), state_dir);
  const auto status = (*cluster)->status_json();
  if (!status.ok()) return status.error();
  const json parsed = json::parse(*status, nullptr, false);
  const json& told = member(parsed, "cluster");
  const json& reasoning = member(told, "reasoning");
  const ReasoningStart start{parse_reasoning_style(text(reasoning, "style")),
                             member(reasoning, "open") == true, false};
  return ChatSource{std::move(*cluster), text(told, "model"),
                    [start](const GenerationRequest&) { return start; }, true};
}

Result<ChatSource> start_source(const LocalClusterOptions& options, GenerationRequest request) {
  const auto frontend = ModelFrontend::load(options.engine);
  if (!frontend.ok()) return frontend.error();
  if (const auto& chat = (*frontend)->chat_format(); !chat.ok())
    return invalid_argument(chat.error().message);
  request.prompt = std::vector<ChatMessage>{{"user", "?"}};
  if (const auto prepared = (*frontend)->prepare(request); !prepared.ok()) return prepared.error();
  auto cluster = Cluster::start(options);
  if (!cluster.ok()) return cluster.error();
  const auto reasoning = [frontend = *frontend](const GenerationRequest& of) {
    return frontend->reasoning(of);
  };
  return ChatSource{std::move(*cluster), (*frontend)->served_model_name(), reasoning, false};
}

}  // namespace troupe::cli
