#include <span>

#include "transport/codec_parts.h"

namespace troupe::transport {

void put(Out&, wire::Parcel::Builder wire, const Parcel& message) {
  wire.setGroup(message.group);
  wire.setNumber(message.number);
  wire.setBytes(message.bytes);
  wire.setHeader(data_of(message.header));
}

Parcel get(In& in, wire::Parcel::Reader wire) {
  Parcel message{wire.getGroup(), wire.getNumber(), wire.getBytes(), {}};
  in.require(message.bytes > 0 && message.bytes <= limits::kBulkPayloadBytesMax,
             "a parcel's size is impossible");
  const auto header = std::as_bytes(std::span(wire.getHeader().begin(), wire.getHeader().size()));
  if (in.ok()) message.header.assign(header.begin(), header.end());
  return message;
}

void put(Out& out, wire::ParcelGroup::Builder wire, const ParcelGroup& message) {
  wire.setGroup(message.group);
  wire.setState(static_cast<wire::ParcelGroup::State>(message.state));
  wire.setCame(message.came);
  wire.setId(data_of(message.id));
  wire.setReason(out.sentence(message.reason));
}

ParcelGroup get(In& in, wire::ParcelGroup::Reader wire) {
  ParcelGroup message;
  message.group = wire.getGroup();
  message.state =
      in.enumeration(wire.getState(), ParcelGroup::State::kBroken, "a communicator's state");
  message.came = wire.getCame();
  message.id = get_communicator_id(in, wire.getId());
  message.reason = in.sentence(wire.getReason());
  return message;
}

}  // namespace troupe::transport
