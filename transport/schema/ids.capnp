# Who and where: the logical names of nodes, actors and devices.
@0x8c49b8bc121826b8;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

enum ActorKind {
  none @0;
  supervisor @1;
  router @2;
  gateway @3;
  nodeAgent @4;
  device @5;
  replica @6;
  layerShard @7;
  expertGroup @8;
  client @9;
  rank @10;
}

struct Address {
  node @0 :UInt32;
  incarnation @1 :UInt64;
  actor @2 :ActorKind;
  index @3 :UInt32;
}

struct DeviceRef {
  node @0 :UInt32;
  index @1 :UInt32;
}
