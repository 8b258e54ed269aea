#include "tools/troupe/operation.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "actors/control/caf_system.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {
namespace {

constexpr Duration kSeekDeadline = std::chrono::seconds(3);

void print(const OperationProgress& news, std::string& last) {
  std::string line = news.text;
  if (news.total > 0)
    line = std::to_string(news.done) + " of " + std::to_string(news.total) +
           (line.empty() ? "" : ": " + line);
  if (line.empty() || line == last) return;
  std::fprintf(stderr, "%s\n", line.c_str());
  last = line;
}

}  // namespace

Result<NodeId> parse_node(const std::string& text) {
  constexpr std::string_view kPrefix = "node-";
  std::string_view number = text;
  if (number.starts_with(kPrefix)) number.remove_prefix(kPrefix.size());
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value == 0)
    return invalid_argument("'" + text + "' is no node; `troupe status` lists them, as node-1.");
  return NodeId{value};
}

Result<std::string> follow_operation(const std::string& state_dir, const std::string& program,
                                     const std::function<Status(ClientSession&)>& ask) {
  auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  std::string last;
  auto done = troupe::follow_operation(
      [&](ClientSession::Events events) {
        return ClientSession::open((*caf)->system(), *join, program, kSeekDeadline,
                                   std::move(events));
      },
      ask, [&](const OperationProgress& news) { print(news, last); });
  if (!done.ok()) return no_head(done.error(), state_dir);
  return done;
}

Status seek_head(const std::string& state_dir, const std::string& program) {
  auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  const auto session =
      ClientSession::open((*caf)->system(), *join, program, kSeekDeadline,
                          {.message = [](const Message&) {}, .down = [](const std::string&) {}});
  return session.ok() ? Status() : no_head(session.error(), state_dir);
}

}  // namespace troupe::cli
