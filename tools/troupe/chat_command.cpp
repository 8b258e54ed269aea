#include <memory>

#include "tools/troupe/call.h"
#include "tools/troupe/chat_session.h"
#include "tools/troupe/chat_source.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/flags.h"
#include "tools/troupe/line_editor.h"
#include "tools/troupe/signals.h"

namespace troupe::cli {
namespace {

struct ChatOptions {
  EngineFlags engine;
  DeviceFlags device;
  GenerationRequest request;
  std::string system;
};

/// The first flag of the two groups that says how to compute, which a cluster decides for itself.
const Flag* flag_of_a_model(const Command& command) {
  for (const Flag& flag : command.flags)
    if ((flag.group == "Engine" || flag.group == "Device") && flag.given && flag.name != "--seed")
      return &flag;
  return nullptr;
}

Result<ChatSource> open_first(const CommonOptions& common, const ChatOptions& o) {
  const EndOnSignal end_on_signal;
  if (o.engine.options.model.empty()) return connect_source(common.state_dir);
  const auto options = in_process(o.engine, o.device);
  if (!options.ok()) return options.error();
  return start_source(*options, o.request);
}

int run(const Call& call, const ChatOptions& o) {
  const Flag* flag = flag_of_a_model(call.command);
  if (o.engine.options.model.empty() && flag != nullptr)
    return fail_with(invalid_argument(
        flag->name + " goes with --model; a running cluster has its own way to compute."));
  LineEditor::prepare();
  auto source = open_first(call.common, o);
  if (!source.ok()) return fail_with(source.error());
  ChatSession::Options options{o.request, o.system,
                               [&call] { return connect_source(call.common.state_dir); }};
  options.request.seed = o.engine.seed;
  return ChatSession(std::move(options), std::move(*source)).run();
}

}  // namespace

Command chat_command(const Doubles& doubles) {
  auto o = std::make_shared<ChatOptions>();
  Command command{
      .name = "chat",
      .description = "A conversation with a running cluster, or with a model in this process",
      .examples =
          "  troupe chat\n"
          "  troupe chat --system 'Answer in one sentence.' --temperature 0.6\n"
          "  troupe chat --model tools/demo/pocket-dictionary\n"
          "  troupe chat < questions.txt > answers.txt\n\n"
          "Ctrl-C ends an answer, Ctrl-D the conversation, /help tells more. Without a terminal "
          "each\n"
          "line is a question, and the answers are printed without their thoughts.",
      .flags = {{"--system", &o->system, "What the model is told before the conversation"}},
      .run = [o](const Call& call) { return run(call, *o); },
      .takes_signals = true,
      .log_level = "warn"};
  add_sampling_flags(command, o->request);
  add_engine_flags(command, o->engine);
  add_device_flags(command, o->device, doubles);
  return command;
}

}  // namespace troupe::cli
