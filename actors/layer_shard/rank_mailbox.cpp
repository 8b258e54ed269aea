#include "actors/layer_shard/rank_mailbox.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "transport/collectives/lane_collective.h"
#include "transport/collectives/nccl_collective.h"

namespace troupe {
namespace {

/// Hands messages on to the exchanges at once, in the thread that brings them.
class RankMailbox final : public Mailbox {
 public:
  using Arrived = std::function<void(std::uint32_t from, const Message& message)>;
  RankMailbox(Arrived arrived, std::vector<Ref<LayerShardInbox>> ranks)
      : arrived_(std::move(arrived)), ranks_(std::move(ranks)) {}
  void end() override {}

 protected:
  void enqueue(Mail mail) override {
    taken();
    if (!mail.envelope.message) return;
    const auto from = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
      return rank.address == mail.envelope.from;
    });
    if (from != ranks_.end())
      arrived_(static_cast<std::uint32_t>(from - ranks_.begin()), *mail.envelope.message);
  }

 private:
  const Arrived arrived_;
  const std::vector<Ref<LayerShardInbox>> ranks_;
};

}  // namespace

Address rank_address(const Ref<LayerShardInbox>& shard) {
  return Ref<RankInbox>(shard.address.node, shard.address.incarnation, shard.address.actor.index)
      .address;
}

std::shared_ptr<Collective> reach_ranks(Post& post, const LayerShardConfig& config,
                                        const std::optional<nccl::Carrier>& nccl) {
  const auto send = [&post, self = config.self.address, ranks = config.ranks](std::uint32_t rank,
                                                                              Message message) {
    post.send({self, rank_address(ranks[rank]), message_of(std::move(message))});
  };
  const auto attach = [&](RankMailbox::Arrived arrived) {
    post.attach(rank_address(config.self),
                std::make_shared<RankMailbox>(std::move(arrived), config.ranks));
  };
  if (nccl && config.by_nccl) {
    auto exchanges = NcclCollective::make({config.rank, config.replica_id, *nccl}, send);
    attach([exchanges](std::uint32_t from, const Message& message) {
      exchanges->arrived(from, message);
    });
    return exchanges;
  }
  const bool here = std::ranges::all_of(config.ranks, [&](const auto& rank) {
    return rank.address.node == config.self.address.node;
  });
  auto exchanges = std::make_shared<LaneCollective>(config.rank, config.replica_id, send, here);
  attach([exchanges](std::uint32_t from, const Message& message) {
    if (const auto* part = std::get_if<RankPart>(&message)) exchanges->arrived(from, *part);
  });
  return exchanges;
}

}  // namespace troupe
