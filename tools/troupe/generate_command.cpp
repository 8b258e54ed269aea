#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "actors/api/cluster.h"
#include "actors/frontend/model_frontend.h"
#include "runtime/limits.h"
#include "tools/troupe/call.h"
#include "tools/troupe/chat/terminal_text.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/flags.h"
#include "tools/troupe/generation_json.h"

namespace troupe::cli {
namespace {

struct GenerateOptions {
  EngineFlags engine;
  DeviceFlags device;
  std::string prompt, chat;
  std::vector<TokenId> prompt_ids;
  GenerationRequest request;
  bool prompt_logprobs = false;
  bool json = false;
};

/// As long as a request may be over HTTP.
constexpr std::size_t kPromptBytesMax = limits::kHttpBodyBytesMax;

/// What was given, or all of the standard input for "-", without the end of its last line.
Result<std::string> text_of(const std::string& given) {
  if (given != "-") return given;
  std::string text;
  char buffer[64 << 10];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(std::cin.gcount()));
    if (text.size() > kPromptBytesMax)
      return invalid_argument("The standard input holds more than " +
                              std::to_string(kPromptBytesMax) + " bytes, too many for a prompt.");
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

int prompts_given(const Command& command) {
  return is_given(command, "--prompt") + is_given(command, "--prompt-ids") +
         is_given(command, "--chat");
}

/// Without one, what somebody pipes in; nobody shall wait for a person who waits for the program.
Status check_prompt(const Command& command) {
  const int given = prompts_given(command);
  if (given == 1 || (given == 0 && !isatty(STDIN_FILENO))) return {};
  return invalid_argument(
      "Give one prompt: --prompt TEXT, --prompt-ids 1,2,3, --chat TEXT or the standard input.");
}

Result<Prompt> prompt_of(const Command& command, const GenerateOptions& o) {
  if (is_given(command, "--prompt-ids")) return Prompt(o.prompt_ids);
  const bool chat = is_given(command, "--chat"), none = prompts_given(command) == 0;
  auto text = text_of(none ? "-" : chat ? o.chat : o.prompt);
  if (!text.ok()) return text.error();
  if (none && text->empty())
    return invalid_argument(
        "The standard input is empty: give a prompt there, or with --prompt, --prompt-ids or "
        "--chat.");
  if (chat) return Prompt(std::vector<ChatMessage>{{"user", std::move(*text)}});
  return Prompt(std::move(*text));
}

int run(const Command& command, const GenerateOptions& o) {
  const auto options = in_process(o.engine, o.device);
  if (!options.ok()) return fail_with(options.error());
  if (const Status checked = check_prompt(command); !checked.ok())
    return fail_with(checked.error());
  // What is wrong with the request is said before weights are loaded for it, and with the model
  // before anybody is waited for.
  const auto frontend = ModelFrontend::load(options->engine);
  if (!frontend.ok()) return fail_with(frontend.error());
  GenerationRequest request = o.request;
  auto prompt = prompt_of(command, o);
  if (!prompt.ok()) return fail_with(prompt.error());
  request.prompt = std::move(*prompt);
  if (o.json && request.logprobs < 0) request.logprobs = 0;
  if (o.prompt_logprobs) request.prompt_logprobs = std::max(0, request.logprobs);
  if (const auto prepared = (*frontend)->prepare(request); !prepared.ok())
    return fail_with(prepared.error());

  auto cluster = Cluster::start(*options);
  if (!cluster.ok()) return fail_with(cluster.error());

  const bool has_text = (*frontend)->tokenizer() != nullptr;
  // A terminal would obey what a file only keeps.
  const bool filters = isatty(STDOUT_FILENO);
  chat::TerminalText filter;
  auto whole = (*cluster)->generate(std::move(request), [&](const GenerationEvent& event) {
    if (o.json || event.choice != 0) return;
    if (!has_text)
      for (const auto& token : event.tokens) std::printf("token_id:%d ", token.token);
    const std::string text = filters ? filter.feed(event.text) : event.text;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
  if (!whole.ok()) return fail_with(whole.error());
  if (o.json)
    std::printf("%s\n", generation_json(*whole, o.prompt_logprobs).c_str());
  else
    std::printf("\n");
  return kDone;
}

}  // namespace

Command generate_command(const Doubles& doubles) {
  auto o = std::make_shared<GenerateOptions>();
  Command command{
      .name = "generate",
      .description = "Answer one prompt in this process, streamed to stdout",
      .examples =
          "  troupe generate --model tools/demo/pocket-dictionary --chat 'What is brandy?'\n"
          "  troupe generate --model DIR --prompt 'Once upon' --max-tokens 64 --temperature 0\n"
          "  troupe generate --model DIR --chat - < question.txt\n"
          "  echo 'Once upon' | troupe generate --model DIR\n"
          "  troupe generate --model DIR --prompt-ids 0,17,42 --json --prompt-logprobs",
      .flags = {{"--prompt", &o->prompt,
                 "Text to go on with; - reads it from stdin, as without any prompt"},
                {"--prompt-ids", &o->prompt_ids, "Token ids to go on with: 1,2,3"},
                {"--chat", &o->chat, "A user's message to a chat model; - reads it from stdin"},
                {"--json", &o->json, "Print one JSON object instead"},
                {"--prompt-logprobs", &o->prompt_logprobs,
                 "With --json: the prompt's log-probabilities too"},
                {"--logprobs", &o->request.logprobs,
                 "With --json: log-probabilities of the k most likely tokens too", "Sampling"}},
      .run = [o](const Call& call) { return run(call.command, *o); },
      .log_level = "warn",
      .keeps_state = false};
  add_sampling_flags(command, o->request);
  add_engine_flags(command, o->engine);
  add_device_flags(command, o->device, doubles);
  return command;
}

}  // namespace troupe::cli
