#include "tools/troupe/command_line/completion_scripts.h"

#include <doctest/doctest.h>

namespace troupe::cli {
namespace {

TEST_CASE("each script has every command, and every flag that is shown") {
  std::string value, name;
  bool on = false;
  const Command root{
      .name = "troupe",
      .description = "",
      .below = {{.name = "plan",
                 .description = "Whether it's there",
                 .flags = {{"--on", &on, "A switch"},
                           {"--file", &value, "A file"},
                           {.name = "--kind",
                            .target = &value,
                            .help = "",
                            .values = {"a", "b"},
                            .short_name = "-k"},
                           {.name = "--path", .target = &value, .help = "", .short_name = "-p"},
                           {"--hidden", &value, "", ""},
                           {"NAME", &name, "No flag"}},
                 .below = {{.name = "eplb", .description = "Below it"}}}}};
  const auto has = [](const std::string& script, const char* part) {
    return script.find(part) != std::string::npos;
  };
  const std::string bash = bash_completion(root), zsh = zsh_completion(root),
                    fish = fish_completion(root);
  CHECK(has(bash, "words=' eplb --on --file -k --kind -p --path' ;;"));
  CHECK(has(bash, "        --file|-p|--path)\n"));
  CHECK(has(bash, "-k|--kind) mapfile -t COMPREPLY < <(compgen -W 'a b' -- \"$current\")"));
  CHECK(has(zsh, "flags=( '--on:A switch' '--file:A file' '-k:' '--kind:' '-p:' '--path:' ) ;;"));
  CHECK(has(zsh, "'plan/eplb') command='plan eplb' ;;"));
  CHECK(has(fish, "-l on -d 'A switch'\n"));
  CHECK(has(fish, "-l file -r -F -d 'A file'\n"));
  CHECK(has(fish, " -s k -l kind -x -a 'a b' -d ''\n"));
  for (const std::string& script : {bash, zsh, fish}) {
    CHECK(!has(script, "hidden"));
    CHECK(!has(script, "NAME"));
  }
}

}  // namespace
}  // namespace troupe::cli
