# Which device holds what, and how a version of it comes into force.
@0x876e262f1e5d4b30;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "engine-options.capnp".EngineOptions;
using import "error.capnp".Error;
using import "ids.capnp".DeviceRef;
using import "numerics.capnp".Numerics;

struct ShardPlacement {
  replica @0 :UInt32;
  stage @1 :UInt32;
  tpRank @2 :UInt32;
  firstLayer @3 :Int32;
  lastLayer @4 :Int32;
  device @5 :DeviceRef;
}

struct ReplicaPlacement {
  id @0 :UInt32;
  node @1 :UInt32;
  kvBlocks @2 :Int32;
}

struct ExpertSlot {
  expert @0 :Int32;
  device @1 :DeviceRef;
}

struct LayerExperts {
  layer @0 :Int32;
  slots @1 :List(ExpertSlot);
}

struct Placement {
  version @0 :UInt64;
  numerics @1 :Numerics;
  replicas @2 :List(ReplicaPlacement);
  shards @3 :List(ShardPlacement);
  experts @4 :List(LayerExperts);
  tier @5 :List(LayerExperts);
}

# Bytes of the token that a bulk-lane connection presents.
const fabricTokenBytes :UInt32 = 32;

struct Peer {
  node @0 :UInt32;
  incarnation @1 :UInt64;
  fabricAddress @2 :Text;
  token @3 :Data;
  nccl @4 :UInt32;
  reversed @5 :Bool;
}

struct Load {
  placement @0 :Placement;
  engine @1 :EngineOptions;
  peers @2 :List(Peer);
}

struct LoadProgress {
  version @0 :UInt64;
  bytesDone @1 :UInt64;
  bytesTotal @2 :UInt64;
}

struct Loaded {
  version @0 :UInt64;
}

struct LoadFailed {
  version @0 :UInt64;
  error @1 :Error;
}

struct Activate {
  version @0 :UInt64;
}

struct Activated {
  version @0 :UInt64;
}

struct Retire {
  version @0 :UInt64;
}

struct Connect {
  peer @0 :Peer;
}

struct LayerCounts {
  layer @0 :Int32;
  tokens @1 :List(UInt32);
}

struct ExpertCounts {
  layers @0 :List(LayerCounts);
}

struct Avoid {
  devices @0 :List(DeviceRef);
}
