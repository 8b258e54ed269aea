#include <csignal>
#include <cstdlib>

#include "runtime/version.h"
#include "tools/troupe/cli.h"

int main(int argc, char** argv) {
  using namespace troupe::cli;
  std::signal(SIGPIPE, SIG_IGN);
  Cli cli;
  cli.app.name("troupe");
  cli.app.set_version_flag("--version", troupe::kVersion);
  cli.app.require_subcommand(1);
  cli.app.footer("Run `troupe COMMAND --help` for a command's flags and examples.");
  add_up(cli);
  add_head(cli);
  add_worker(cli);
  add_status(cli);
  add_stop(cli);
  add_generate(cli);
  add_tokenize(cli);
  try {
    cli.app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return cli.app.exit(e);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    (void)cli.app.exit(e);
    return kUsage;
  }
  return kDone;
}
