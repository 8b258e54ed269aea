#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/worker/file_source.h"
#include "tests/actors/effects.h"
#include "tests/actors/mail_queue.h"
#include "tests/source_path.h"

/// A FileSource, and the mailbox of the agent that it tells.
namespace troupe::testing {

inline const std::string kModel = source_path("tests/golden/v2-lite");

struct Source {
  Post post;
  Ref<NodeAgentInbox> agent{NodeId{9}, Incarnation{1}};
  std::shared_ptr<MailQueue> mail = std::make_shared<MailQueue>();
  FileSource source;
  std::vector<PieceRead> pieces;  ///< that came before the news that was waited for
  std::vector<std::string> changed;  ///< FilesChanged, the same

  explicit Source(int threads = 2, std::vector<FileSource::Home> homes = {})
      : source(post, threads, std::move(homes)) {
    post.attach(agent.address, mail);
    source.listen(agent);
  }
  ~Source() { mail->hold(false); }

  /// Waits for news of that kind.
  template <class T>
  T wait() {
    while (const auto next = mail->next()) {
      if (const auto* found = local<NodeAgentInbox, T>(*next)) return *found;
      if (const auto* piece = local<NodeAgentInbox, PieceRead>(*next))
        pieces.push_back(*piece);
      else if (const auto* files = local<NodeAgentInbox, FilesChanged>(*next))
        changed.push_back(files->why);
      else
        FAIL("other news came first");
    }
    FAIL("nothing came");
    std::abort();
  }
  Result<InspectedCheckpoint> inspect(const std::string& folder = kModel) {
    source.inspect(folder);
    return wait<CheckpointInspected>().checkpoint;
  }
  PartRead read(const ReadOrder& order) {
    pieces.clear();
    source.read(order);
    return wait<PartRead>();
  }
};

inline ReadOrder order_of(std::uint64_t version, const std::string& hash,
                          std::vector<std::int32_t> experts, std::vector<LayerRange> shards = {},
                          const std::string& folder = kModel) {
  ReadOrder order;
  order.version = PlacementVersion{version};
  order.model_path = folder;
  order.checkpoint_hash = hash;
  for (const auto e : experts) order.experts.push_back({1, e});
  order.shards = std::move(shards);
  return order;
}

}  // namespace troupe::testing
