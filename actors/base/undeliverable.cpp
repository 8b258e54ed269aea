#include "actors/base/undeliverable.h"

#include "runtime/overloaded.h"

namespace troupe {

std::uint64_t reference_of(const Message& message) {
  return std::visit(Overloaded{
                        [](const Submit& m) { return m.sequence.value; },
                        [](const Cancel& m) { return m.sequence.value; },
                        [](const StepPlan& m) { return m.body.step.value; },
                        [](const Hidden& m) { return m.step.value; },
                        [](const StepResult& m) { return m.step.value; },
                        [](const StepFailed& m) { return m.step.value; },
                        [](const StepAbort& m) { return m.step.value; },
                        [](const Dispatch& m) { return m.call; },
                        [](const ExpertOutput& m) { return m.call; },
                        [](const NotHere& m) { return m.call; },
                        [](const RankPart& m) { return m.step.value; },
                        [](const RankReady& m) { return m.step.value; },
                        [](const RankGo& m) { return m.step.value; },
                        [](const ClientGeneration& m) { return m.query; },
                        [](const auto&) { return std::uint64_t{0}; },
                    },
                    message);
}

Undeliverable undeliverable(const Envelope& envelope, Error why) {
  return {envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
          reference_of(*envelope.message), std::move(why)};
}

}  // namespace troupe
