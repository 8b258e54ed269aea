#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ids.h"

/// What two nodes say about tensors that go between them by NCCL, of transport/message.h
/// (transport/parcels/parcel_sender.h).
namespace troupe {

/// sender -> receiver: a message whose tensor comes by that communicator.
struct Parcel {
  std::uint32_t group = 0;
  std::uint64_t number = 0;       ///< in it: from 1, without gaps
  std::uint64_t bytes = 0;        ///< of the tensor
  std::vector<std::byte> header;  ///< as transport::encode made it of the message
};
/// Of a communicator from one node to another. The sender numbers its own, rising.
struct ParcelGroup {
  enum class State : std::uint8_t {
    kForm,    ///< sender -> receiver: form it with this id
    kFormed,  ///< receiver -> sender: it is, here
    kCame,    ///< receiver -> sender, now and then: so many parcels have come
    kEnd,     ///< sender -> receiver: it is no more; say what has come
    kBroken,  ///< receiver -> sender: it is no more; so many have come, and no more of it will
  };
  std::uint32_t group = 0;
  State state = State::kForm;
  std::uint64_t came = 0;
  CommunicatorId id{};
  std::string reason = {};
};

}  // namespace troupe
