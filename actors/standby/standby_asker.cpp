#include "actors/standby/standby_asker.h"

#include <utility>

namespace troupe {

StandbyAsker::~StandbyAsker() = default;

void StandbyAsker::end() {
  ended_ = true;
  link_.reset();
}

void StandbyAsker::ask(const std::string& address, const std::string& cluster_id, Incarnation self,
                       std::function<void(StandbyAnswered)> answered) {
  if (ended_) return;
  link_.reset();
  const auto at = parse_host_port(address);
  if (!at.ok()) return;
  auto made = make_link_(*at);
  if (!made.ok()) return;
  link_ = std::move(*made);
  // A standby says once what it is, and once more when it has given up.
  link_->listen({
      .up = [](const ControlWay&) {},
      .message =
          [link = link_.get(), cluster_id, self, answered = std::move(answered),
           asked = false](Envelope envelope) mutable {
            const Message& message = *envelope.message;
            if (const auto* greeting = std::get_if<Greeting>(&message)) {
              if (greeting->cluster_id == cluster_id && envelope.from.incarnation != self)
                answered({true});
            } else if (const auto* standing = std::get_if<Standing>(&message)) {
              // With a term it asks workers, and may not have heard the question yet.
              const bool gave_up =
                  standing->term == Incarnation{} && standing->cluster_id == cluster_id;
              if (asked && gave_up) return answered({false});
              if (asked) return;
              asked = true;
              (void)link->send({envelope.to, envelope.from, message_of(HeadReturns{cluster_id})});
            }
          },
      .down = [](const std::string&, bool) {},
  });
  link_->connect();
}

}  // namespace troupe
