# How a standby follows a head, and how it takes over.
@0xd3b1a7c94e60f215;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "engine-options.capnp".EngineOptions;

struct Follow {
  newestProtocol @0 :UInt32;
  version @1 :Text;
  checkpointHash @2 :Text;
  engine @3 :EngineOptions;
  address @4 :Text;
  standby @5 :UInt64;
  instead @6 :UInt64;
  oldestProtocol @7 :UInt32;
}

struct WorkerLife {
  id @0 :UInt32;
  incarnation @1 :UInt64;
}

struct Succession {
  number @0 :UInt64;
  clusterId @1 :Text;
  nextNode @2 :UInt32;
  complete @3 :Bool;
  members @4 :List(WorkerLife);
}

struct KnownLines {
  begins @0 :Bool;
  lines @1 :Text;
}

struct JournalCopy {
  file @0 :UInt64;
  mark @1 :UInt64;
  begins @2 :Bool;
  completes @3 :Bool;
  records @4 :List(Data);  # journal.capnp: a JournalRecord each
  tells @5 :Bool;
}

struct Followed {
  beat @0 :UInt64;
  succession @1 :UInt64;
  mark @2 :UInt64;
}

struct Successor {
  number @0 :UInt64;
  standby @1 :UInt64;
  address @2 :Text;
}

struct SuccessorKnown {
  number @0 :UInt64;
}

struct Standing {
  clusterId @0 :Text;
  standby @1 :UInt64;
  term @2 :UInt64;
  reason @3 :Text;
}

struct Pledge {
  term @0 :UInt64;
  life @1 :WorkerLife;
  standby @2 :UInt64;
}

struct HeadReturns {
  clusterId @0 :Text;
}
