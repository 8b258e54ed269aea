# How a worker becomes a member, stays one and goes.
@0xf89d4741f3a24bf8;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "engine-options.capnp".EngineOptions;
using import "error.capnp".ErrorCode;
using import "links.capnp".FabricPort;
using import "numerics.capnp".Numerics;
using import "placement.capnp".Placement;
using import "proofs.capnp".ProofReport;

struct ProtocolRange {
  oldest @0 :UInt32;
  newest @1 :UInt32;
}

struct Greeting {
  protocol @0 :ProtocolRange;
  clusterId @1 :Text;
  version @2 :Text;
  modelPath @3 :Text;
  checkpointHash @4 :Text;
  numerics :union {
    none @5 :Void;
    value @6 :Numerics;
  }
  modelPlace @7 :UInt64;
}

struct DeviceInventory {
  kind @0 :Text;
  memoryTotalBytes @1 :UInt64;
  threads @2 :UInt32;
  name @3 :Text;
  architecture @4 :Text;
}

struct Join {
  protocol @0 :ProtocolRange;
  version @1 :Text;
  host @2 :Text;
  pid @3 :Int32;
  role @4 :Text;
  numerics @5 :List(Numerics);
  checkpointHash @6 :Text;
  devices @7 :List(DeviceInventory);
  heldId @8 :UInt32;
  heldCluster @9 :Text;
  heldWeightBytes @10 :UInt64;
  fabricAddress @11 :Text;
  fabricDescription @12 :Text;
  heldShards @13 :List(LayerRange);
  heldExperts @14 :List(HeldExperts);
  tierMemoryBytes @15 :UInt64;
  nccl @16 :UInt32;
  heldRole @17 :HeldRole;
  fabricPort @18 :FabricPort;
}

struct HeldRole {
  incarnation @0 :UInt64;
  placement @1 :Placement;
  engine @2 :EngineOptions;
  lost @3 :List(UInt32);
}

struct LayerRange {
  first @0 :Int32;
  last @1 :Int32;
  tpRank @2 :UInt32;
  tpSize @3 :UInt32 = 1;
}

struct HeldExperts {
  layer @0 :Int32;
  experts @1 :List(Int32);
}

struct Refused {
  code @0 :ErrorCode;
  reason @1 :Text;
}

struct Welcome {
  id @0 :UInt32;
  incarnation @1 :UInt64;
  leaseMs @2 :UInt32;
  keepForS @3 :UInt32 = 60;
}

struct DeviceReport {
  memoryUsedBytes @0 :UInt64;
  utilization @1 :Float32;
  probeUs @2 :UInt32;
  failed @3 :Text;
  expertsRead @4 :UInt64;
  health @5 :DeviceHealth;
}

# What is not known is below 0.
struct DeviceHealth {
  utilization @0 :Float32 = -1;
  temperatureC @1 :Int64 = -1;
  eccErrors @2 :Int64 = -1;
  throttled @3 :Text;
}

struct ReplicaReport {
  replica @0 :UInt32;
  running @1 :UInt32;
  waiting @2 :UInt32;
  kvBlocksTotal @3 :Int32;
  kvBlocksUsed @4 :Int32;
  preemptions @5 :UInt64;
  kvBlocksCached @6 :Int32;
}

struct Renew {
  sequence @0 :UInt64;
  devices @1 :List(DeviceReport);
  replicas @2 :List(ReplicaReport);
  proofs @3 :ProofReport;
  heard @4 :UInt64;
}

struct Renewed {
  sequence @0 :UInt64;
}

struct Leave {
  reason @0 :Text;
}

struct Stop {
  reason @0 :Text;
}

enum LinkFault {
  broke @0;
  nobody @1;
  ownEnd @2;
}

struct PeerUnreachable {
  peer @0 :UInt32;
  incarnation @1 :UInt64;
  reason @2 :Text;
  fault @3 :LinkFault;
}

struct MemberLost {
  node @0 :UInt32;
  incarnation @1 :UInt64;
  reason @2 :Text;
}

struct PeerPing {
}
