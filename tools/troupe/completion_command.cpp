#include <cstdio>
#include <memory>
#include <string>

#include "tools/troupe/call.h"
#include "tools/troupe/command_line/completion_scripts.h"
#include "tools/troupe/commands.h"

namespace troupe::cli {
namespace {

int run(const Command& root, const std::string& shell) {
  std::string script;
  if (shell == "bash") script = bash_completion(root);
  if (shell == "zsh") script = zsh_completion(root);
  if (shell == "fish") script = fish_completion(root);
  if (script.empty())
    return fail_with(invalid_argument("'" + shell + "' is none of bash, zsh and fish."));
  std::fwrite(script.data(), 1, script.size(), stdout);
  return kDone;
}

}  // namespace

Command completion_command(const Command& root) {
  auto shell = std::make_shared<std::string>();
  return {.name = "completion",
          .description = "A script that makes a shell complete commands and flags",
          .examples =
              "  source <(troupe completion bash)          # in ~/.bashrc, for good\n"
              "  troupe completion zsh > \"${fpath[1]}/_troupe\"\n"
              "  troupe completion fish > ~/.config/fish/completions/troupe.fish",
          .flags = {{.name = "SHELL",
                     .target = shell.get(),
                     .help = "bash, zsh or fish",
                     .required = true}},
          .run = [&root, shell](const Call&) { return run(root, *shell); },
          .keeps_state = false};
}

}  // namespace troupe::cli
