#include "tools/troupe/command_line/usage.h"

#include <doctest/doctest.h>

namespace troupe::cli {
namespace {

TEST_CASE("what was probably meant is said") {
  std::string model, hidden;
  Command root{.name = "troupe",
               .description = "",
               .below = {{.name = "up", .description = ""},
                         {.name = "status",
                          .description = "",
                          .flags = {{.name = "--model",
                                     .target = &model,
                                     .help = "",
                                     .short_name = "-m",
                                     .elsewhere = {"--checkpoint"}},
                                    {"--log-name", &hidden, "", ""}},
                          .below = {{.name = "nodes", .description = ""}},
                          .run = [](const Call&) { return 0; }}}};
  struct Case {
    std::vector<std::string> words;
    std::string said;
  };
  for (const Case& c : {
           Case{{"status", "--modle=x"},
                "'--modle' is no flag of `troupe status`; did you mean '--model'?"},
           {{"status", "--checkpoint", "x"},
            "'--checkpoint' is no flag of `troupe status`; did you mean '--model'?"},
           {{"-m", "x", "status"}, "'-m' comes after `troupe status`, not before;"},
           {{"status", "--log-nam", "x"}, "'--log-nam' is no flag of `troupe status`;"},
           {{"status", "node"}, "'node' is not expected; did you mean 'nodes'?"},
           {{"status", "no/such"}, "'no/such' is not expected; did you mean '--model no/such'?"},
           {{"--model", "x", "status"}, "'--model' comes after `troupe status`, not before;"},
           {{"status", "--model"}, "--model: 1 required TEXT missing;"},
       })
    CHECK(usage_error(parse(root, c.words)) == c.said + " `troupe status --help` tells more.");
  CHECK(unknown_command(root, "stauts") == "There is no command 'stauts'; did you mean 'status'?");
  CHECK(unknown_command(root, "serve") == "There is no command 'serve'; did you mean 'up'?");
  CHECK(unknown_command(root, "dance") ==
        "There is no command 'dance'; `troupe --help` lists them.");
}

}  // namespace
}  // namespace troupe::cli
