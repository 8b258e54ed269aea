# As runtime/numerics.h has them. 1 to 3 were families of instructions with bits of their own.
@0xe324e82052400376;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

enum Numerics {
  reference @0;
  avx2 @1;
  avx512Bf16 @2;
  amxBf16 @3;
  bf16 @4;
  bf16KvFp8 @5;
  avx512Bf16V1 @6;
  avx512Bf16V1KvFp8 @7;
  cudaMmaV1 @8;
  cudaMmaV1KvFp8 @9;
}
