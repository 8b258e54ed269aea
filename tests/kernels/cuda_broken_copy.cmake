# cmake -DSOURCE=.../fast_product.cu -DOUT=... -P cuda_broken_copy.cmake
# Writes a copy of a kernel's source with switches for what may be broken in it (cuda_broken.h), and
# under other names. What is changed must stand there exactly once: whoever writes a kernel
# otherwise says here how it breaks then.
file(READ "${SOURCE}" text)
get_filename_component(kernel "${SOURCE}" NAME_WE)

function(change from to)
  string(FIND "${text}" "${from}" first)
  string(FIND "${text}" "${from}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${SOURCE} has not exactly once, and cuda_broken_copy.cmake asks for it:\n"
      "${from}")
  endif()
  string(REPLACE "${from}" "${to}" text "${text}")
  set(text "${text}" PARENT_SCOPE)
endfunction()

# The line `barrier` between `before` and `after` is left out where `fault` is that.
function(leave_out fault before barrier after)
  change("${before}${barrier}${after}" "${before}if (fault != Fault::${fault}) ${barrier}${after}")
  set(text "${text}" PARENT_SCOPE)
endfunction()

if(kernel STREQUAL fast_product)
  change("void fast_products(" "void fast_products_copy(")
  change("even[r][o] = fma_f32(" "even[r][o] = counted_fma(")
  change("odd[r][o] = fma_f32(" "odd[r][o] = counted_fma(")
  leave_out(kProductReadsEarly "load_x(cta, item, first, count, x);\n      " "cta.sync();" "\n")
  leave_out(kProductSumsEarly "" "cta.sync();" "\n      if (row >= item.rows) continue;")
  change("item.x + first * 64 +" "item.x + (fault == Fault::kProductStaleTile ? 0 : first) * 64 +")
  change("q * 4 + o] = even[r][o] + odd[r][o];"
    "(q ^ (fault == Fault::kProductWrongLane ? 1 : 0)) * 4 + o] = even[r][o] + odd[r][o];")
elseif(kernel STREQUAL mma_product)
  change("void mma_products(" "void mma_products_copy(")
  leave_out(kMmaSumsEarly "" "cta.sync();" "\n#pragma unroll 1\n      for (int s = 0;")
  leave_out(kMmaSumsOverwritten "" "cta.sync();" "\n    }\n    const std::int64_t at =")
  change("block * std::int64_t{64} + step * 16"
    "block * std::int64_t{64} + (step ^ (fault == Fault::kMmaWrongLane ? 1 : 0)) * 16")
  change("if (c * 8 >= rows) continue;"
    "if (c * 8 + (fault == Fault::kMmaNotAll ? q : 0) >= rows) continue;")
elseif(kernel STREQUAL mma_attention)
  change("bool mma_attention(" "bool mma_attention_copy(")
  leave_out(kPartNoWait "" "ptx::wait_copies<1>(cta);" "")
  leave_out(kPartTileEarly "" "cta.sync();" "\n      score(cta, u, stage, room);")
  leave_out(kPartScoresEarly "" "cta.sync();" "\n      weigh(")
  leave_out(kPartTileOverwritten "stage, room, out);\n      " "cta.sync();" "")
  change("(position + lane % 8) * rows.key + lane / 8"
    "(position + lane % 8) * rows.key + (lane / 8 ^ (fault == Fault::kPartWrongLane ? 1 : 0))")
elseif(kernel STREQUAL chosen_mlp)
  change("::chosen_mlp(" "::chosen_mlp_copy(")
  change("::plain_chosen_mlp(" "::plain_chosen_mlp_copy(")
  leave_out(kSortSumsOverwritten "" "cta.sync();" "  // they may still be read")
  leave_out(kSortSumsEarly "= sum;\n    " "cta.sync();" "")
  change("cta.lane() < distance ? cta.lane()"
    "cta.lane() < distance && fault != Fault::kSortWrongLane ? cta.lane()")
else()
  message(FATAL_ERROR "cuda_broken_copy.cmake does not know how to break ${SOURCE}")
endif()
file(WRITE "${OUT}" "#include \"tests/kernels/cuda_broken.h\"\n${text}")
