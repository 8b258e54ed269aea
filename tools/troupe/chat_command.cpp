#include <memory>

#include "tools/troupe/chat_session.h"
#include "tools/troupe/chat_source.h"
#include "tools/troupe/cli.h"
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
const CLI::Option* flag_of_a_model(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options())
    if ((option->get_group() == "Engine" || option->get_group() == "Device") &&
        option->count() > 0 && option->get_lnames().front() != "seed")
      return option;
  return nullptr;
}

Result<ChatSource> open_first(const CommonOptions& common, const ChatOptions& o) {
  const EndOnSignal end_on_signal;
  if (o.engine.options.model.empty()) return connect_source(common.state_dir);
  const auto options = in_process(o.engine, o.device);
  if (!options.ok()) return options.error();
  return start_source(*options, o.request);
}

int run(const CommonOptions& common, const ChatOptions& o, const CLI::App& command) {
  const CLI::Option* flag = flag_of_a_model(command);
  if (o.engine.options.model.empty() && flag != nullptr)
    return fail_with(invalid_argument(
        flag->get_name() + " goes with --model; a running cluster has its own way to compute."));
  auto source = open_first(common, o);
  if (!source.ok()) return fail_with(source.error());
  ChatSession::Options options{o.request, o.system,
                               [&common] { return connect_source(common.state_dir); }};
  options.request.seed = o.engine.seed;
  return ChatSession(std::move(options), std::move(*source)).run();
}

}  // namespace

void add_chat(Cli& cli) {
  auto o = std::make_shared<ChatOptions>();
  auto self = std::make_shared<CLI::App*>(nullptr);
  CLI::App* command = add_command(
      cli, "chat", "A conversation with a running cluster, or with a model in this process",
      "  troupe chat\n"
      "  troupe chat --system 'Answer in one sentence.' --temperature 0.6\n"
      "  troupe chat --model tools/demo/pocket-dictionary\n"
      "  troupe chat < questions.txt > answers.txt\n\n"
      "Ctrl-C ends an answer, Ctrl-D the conversation, /help tells more. Without a terminal each\n"
      "line is a question, and the answers are printed without their thoughts.",
      {[&cli, o, self] { return run(cli.common, *o, **self); }, true, "warn"});
  *self = command;
  command->add_option("--system", o->system, "What the model is told before the conversation");
  add_sampling_flags(command, o->request);
  add_engine_flags(command, o->engine);
  add_device_flags(cli, command, o->device);
}

}  // namespace troupe::cli
