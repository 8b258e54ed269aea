# Tensors between two nodes that go by NCCL, and the communicators that they go by.
@0xb0b7a2c4d1935e61;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# The tensor comes by NCCL; the header is that of the message that it belongs to.
struct Parcel {
  group @0 :UInt32;
  number @1 :UInt64;
  bytes @2 :UInt64;
  header @3 :Data;
}

struct ParcelGroup {
  group @0 :UInt32;
  state @1 :State;
  came @2 :UInt64;
  id @3 :Data;
  reason @4 :Text;

  enum State {
    form @0;
    formed @1;
    came @2;
    end @3;
    broken @4;
  }
}
