# The engine flags of the head, as the whole cluster follows them.
@0xd2a91e3b05177056;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using import "numerics.capnp".Numerics;

struct EngineOptions {
  model @0 :Text;
  servedModelName @1 :Text;
  maxModelLen @2 :Int64;
  maxNumSeqs @3 :Int32;
  maxNumBatchedTokens @4 :Int32;
  blockSize @5 :Int32;
  kvCacheMemoryBytes @6 :UInt64;
  # Part of the numerics now; not read.
  kvCacheDtype @7 :Text;
  seed :union {
    none @8 :Void;
    value @9 :UInt64;
  }
  requestTimeoutS @10 :Int32;
  tensorParallelSize @11 :Int32;
  pipelineParallelSize @12 :Int32;
  dataParallelSize @13 :Int32;
  redundantExperts @14 :Int32;
  minDevices @15 :Int32;
  numerics :union {
    none @16 :Void;
    value @17 :Numerics;
  }
  prefixCaching @18 :Bool = true;
}
