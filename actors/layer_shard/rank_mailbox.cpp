#include "actors/layer_shard/rank_mailbox.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "transport/collectives/lane_collective.h"

namespace troupe {
namespace {

/// Hands parts on to the exchanges at once, in the thread that brings them.
class RankMailbox final : public Mailbox {
 public:
  RankMailbox(std::shared_ptr<LaneCollective> exchanges, std::vector<Ref<LayerShardInbox>> ranks)
      : exchanges_(std::move(exchanges)), ranks_(std::move(ranks)) {}
  void end() override {}

 protected:
  void enqueue(Mail mail) override {
    taken();
    if (!mail.envelope.message) return;
    const auto* part = std::get_if<RankPart>(mail.envelope.message.get());
    const auto from = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
      return rank.address == mail.envelope.from;
    });
    if (part && from != ranks_.end())
      exchanges_->arrived(static_cast<std::uint32_t>(from - ranks_.begin()), *part);
  }

 private:
  const std::shared_ptr<LaneCollective> exchanges_;
  const std::vector<Ref<LayerShardInbox>> ranks_;
};

}  // namespace

Address rank_address(const Ref<LayerShardInbox>& shard) {
  return Ref<RankInbox>(shard.address.node, shard.address.incarnation, shard.address.actor.index)
      .address;
}

std::shared_ptr<Collective> reach_ranks(Post& post, const LayerShardConfig& config) {
  const auto send = [&post, self = config.self.address, ranks = config.ranks](std::uint32_t rank,
                                                                              RankPart part) {
    post.send({self, rank_address(ranks[rank]), message_of(std::move(part))});
  };
  auto exchanges = std::make_shared<LaneCollective>(config.rank, config.replica_id, send);
  post.attach(rank_address(config.self), std::make_shared<RankMailbox>(exchanges, config.ranks));
  return exchanges;
}

}  // namespace troupe
