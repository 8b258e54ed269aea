# What measures the bulk connections between workers, and what these go by.
@0xd3a84bb1f0c96e27;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "error.capnp".Error;

# What is not known is empty, or 0.
struct FabricAdapter {
  name @0 :Text;
  pciAddress @1 :Text;
  vendorId @2 :Text;
  deviceId @3 :Text;
  driver @4 :Text;
  firmware @5 :Text;
  network @6 :Text;
  state @7 :Text;
  bitsPerS @8 :UInt64;
  mtu @9 :UInt32;
}

# What is not known is empty, or below 0.
struct FabricPort {
  provider @0 :Text;
  providerWhy @1 :Text;
  providers @2 :List(Text);
  interface @3 :Text;
  interfaceWhy @4 :Text;
  interfaces @5 :List(Text);
  numaNode @6 :Int32 = -1;
  speedMbit @7 :Int32 = -1;
  adapter @8 :FabricAdapter;
}

struct NetworkQuery {
  query @0 :UInt64;
  node @1 :UInt32;
  pairsMax @2 :UInt32;
  sizesBytes @3 :List(UInt32);
  whileServing @4 :Bool;
  oneAtATime @5 :Bool;
}

struct NetworkNode {
  id @0 :UInt32;
  host @1 :Text;
  address @2 :Text;
  port @3 :FabricPort;
}

struct NetworkPlan {
  query @0 :UInt64;
  nodes @1 :List(NetworkNode);
  pairs @2 :UInt32;
  leftOut @3 :UInt32;
  rounds @4 :UInt32;
}

# Bytes a second.
struct LinkRate {
  bytes @0 :UInt32;
  there @1 :Float64;
  back @2 :Float64;
}

struct LinkFigures {
  roundTrips @0 :UInt32;
  p50Us @1 :Float32;
  p99Us @2 :Float32;
  rates @3 :List(LinkRate);
}

struct PairReport {
  query @0 :UInt64;
  lower @1 :UInt32;
  higher @2 :UInt32;
  figures @3 :LinkFigures;
  running @4 :UInt32;
  error :union {
    none @5 :Void;
    value @6 :Error;
  }
}

struct MeasureLink {
  number @0 :UInt64;
  peer @1 :UInt32;
  incarnation @2 :UInt64;
  sizesBytes @3 :List(UInt32);
}

struct EndMeasure {
  number @0 :UInt64;
}

struct LinkMeasured {
  number @0 :UInt64;
  figures @1 :LinkFigures;
  error :union {
    none @2 :Void;
    value @3 :Error;
  }
}

struct LinkProbe {
  number @0 :UInt64;
  sequence @1 :UInt64;
  replyBytes @2 :UInt32;
}

struct LinkEcho {
  number @0 :UInt64;
  sequence @1 :UInt64;
}
