#include "actors/head/head.h"

#include <memory>
#include <utility>

#include "actors/base/shell.h"

namespace troupe {

void HeadHands::carry_out(BindSession&& e, const Supervisor&) {
  hub->bind(e.session, e.node, e.incarnation);
}

void HeadHands::carry_out(CloseSession&& e, const Supervisor&) { hub->close(e.session, e.reason); }

/// If the session has ended, its end is on its way to the Supervisor.
void HeadHands::carry_out(SendToSession&& e, const Supervisor&) {
  (void)hub->send(e.session, {self.address, hub->address_of(e.session), std::move(e.message)});
}

void HeadHands::carry_out(AnswerStatus&& e, const Supervisor& supervisor) {
  std::string json = surroundings->status(supervisor);
  if (e.reply) return e.reply->set_value(std::move(json));
  carry_out(SendToSession{e.session, message_of(StatusReply{e.query, std::move(json)})},
            supervisor);
}

void HeadHands::carry_out(EventNoted&& e, const Supervisor&) { surroundings->noted(e.event); }

void HeadHands::carry_out(TokensCounted&& e, const Supervisor&) {
  surroundings->counted(e.counts);
}

void HeadHands::carry_out(ImbalanceMeasured&& e, const Supervisor&) { surroundings->measured(e); }
void HeadHands::carry_out(LoadsMeasured&& e, const Supervisor&) { surroundings->measured(e); }

void HeadHands::carry_out(HeadMayEnd&& e, const Supervisor&) { surroundings->may_end(e); }

void HeadHands::turned(const Supervisor& supervisor) { surroundings->changed(supervisor); }

Head::Head(Host& host, Parts parts)
    : host_(host),
      supervisor_(kHeadNode, parts.supervisor.incarnation),
      router_(kHeadNode, parts.supervisor.incarnation),
      hub_(host.post(), supervisor_, parts.lane) {
  parts.router.supervisor = supervisor_;
  // The Router first: from its first turn on the Supervisor has something to say to it.
  host.spawn(
      router_.address,
      [&host, self = router_, options = std::move(parts.router),
       hands = RouterHands{&parts.desk, parts.store}](const Life&) {
        return std::make_unique<Shell<Router, RouterHands>>(host, self.address, Router(options),
                                                            hands);
      },
      {});
  const HeadHands hands{supervisor_, &hub_, &parts.surroundings};
  host.spawn(
      supervisor_.address,
      [&host, options = std::move(parts.supervisor), hands](const Life&) {
        return std::make_unique<Shell<Supervisor, HeadHands>>(host, hands.self.address,
                                                              Supervisor(options), hands);
      },
      {});
}

Head::~Head() {
  host_.end(supervisor_.address);
  host_.end(router_.address);
}

}  // namespace troupe
