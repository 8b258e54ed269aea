#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tools/troupe/cli.h"
#include "tools/troupe/completion_scripts.h"

namespace troupe::cli {
namespace {

/// What flags may say that are one of a few words.
std::vector<std::string> values_of(const std::string& flag) {
  if (flag == "numerics") return {"auto", "bf16", "avx512_bf16", "cuda_mma", "reference"};
  if (flag == "kv-cache-dtype") return {"auto", "bf16", "fp8"};
  if (flag == "fabric") return {"auto", "net", "tcp", "shm", "verbs", "efa", "nccl"};
  if (flag == "device") return {"auto", "cpu", "cuda"};
  if (flag == "cpu-family") return {"auto", "avx2", "avx512", "amx"};
  if (flag == "log-level") return {"trace", "debug", "info", "warn", "error", "off"};
  return {};
}

/// The whole tree of commands, as the command line itself has it: what is new is completed without
/// anybody saying so.
void walk(const CLI::App& app, const std::string& path, const std::string& parent,
          std::vector<CommandWords>& out) {
  CommandWords words{path, parent, app.get_name(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames())
        words.flags.push_back({"--" + name, option->get_description(),
                               option->get_items_expected_max() > 0, values_of(name)});
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* next : below)
    words.below.emplace_back(next->get_name(), next->get_description());
  out.push_back(std::move(words));
  for (const CLI::App* next : below)
    walk(*next, path + (path.empty() ? "" : " ") + next->get_name(), path, out);
}

int run(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands;
  walk(app, "", "", commands);
  std::string script;
  if (shell == "bash") script = bash_completion(commands);
  if (shell == "zsh") script = zsh_completion(commands);
  if (shell == "fish") script = fish_completion(commands);
  if (script.empty())
    return fail_with(invalid_argument("'" + shell + "' is none of bash, zsh and fish."));
  std::fwrite(script.data(), 1, script.size(), stdout);
  return kDone;
}

}  // namespace

void add_completion(Cli& cli) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      add_command(cli, "completion", "A script that makes a shell complete commands and flags",
                  "  source <(troupe completion bash)          # in ~/.bashrc, for good\n"
                  "  troupe completion zsh > \"${fpath[1]}/_troupe\"\n"
                  "  troupe completion fish > ~/.config/fish/completions/troupe.fish",
                  {.run = [&cli, shell] { return run(cli.app, *shell); }, .keeps_state = false});
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
}

}  // namespace troupe::cli
