#include "tests/fuzz/seeds.h"
#include "tests/transport/message_samples.h"
#include "transport/codec.h"

namespace troupe::fuzz {

/// Every message, behind the byte that the target takes for the size of the payload.
std::vector<std::string> made_seeds() {
  std::vector<std::string> seeds;
  for (const Envelope& envelope : message_samples()) {
    const auto bytes = transport::encode(envelope);
    if (!bytes.ok()) continue;
    const Payload* payload = transport::payload_of(*envelope.message);
    std::string seed(1, static_cast<char>(payload == nullptr ? 0 : payload->bytes.size() / 16));
    seed.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

}  // namespace troupe::fuzz
