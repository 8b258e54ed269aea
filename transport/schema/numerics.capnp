# The kernel families, in the order of runtime/numerics.h.
@0xe324e82052400376;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

enum Numerics {
  reference @0;
  avx2 @1;
  avx512Bf16 @2;
  amxBf16 @3;
}
