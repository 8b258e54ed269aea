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
  leave_out(kProductReadsEarly "(kAhead < 3 ? kAhead : 3)>(cta);\n      " "cta.sync();" "\n")
  leave_out(kProductSumsEarly "" "cta.sync();" "\n      add(cta, count);")
  leave_out(kProductNoWait "" "ptx::wait_copies<kAhead - CodesOf::kSteps>(cta);" "")
  leave_out(kProductMetEarly "= ahead[i];\n      " "cta.sync();" "")
  change("if (!cta.last_of(p.came + group(cta), static_cast<std::uint32_t>(sharers))) return;"
    "if (fault == Fault::kProductNotAwaited
            ? static_cast<int>(cta.block_y()) % sharers > 0
            : !cta.last_of(p.came + group(cta), static_cast<std::uint32_t>(sharers))) return;")
  change("of.x + first * std::int64_t{64}"
    "of.x + (fault == Fault::kProductStaleTile ? 0 : first) * std::int64_t{64}")
  change("(block * kX + to + r) * 8 + q;"
    "(block * kX + to + r) * 8 + (q ^ (fault == Fault::kProductWrongLane ? 1 : 0));")
elseif(kernel STREQUAL mma_product)
  change("void mma_products(" "void mma_products_copy(")
  leave_out(kMmaNoWait "" "ptx::wait_copies<0>(cta);" "")
  leave_out(kMmaTileEarly "ptx::wait_copies<0>(cta);\n        " "cta.sync();" "")
  leave_out(kMmaSumsEarly "" "cta.sync();" "\n    add_round(cta, w, turn, slice, slice_end);")
  change("turn.at * std::int64_t{64} + cta.lane() % 4 * 16"
    "turn.at * std::int64_t{64} +
        (cta.lane() % 4 ^ (fault == Fault::kMmaWrongLane ? 1 : 0)) * 16")
  change("if (step * kStep < now.count)"
    "if (step * kStep + (fault == Fault::kMmaNotAll ? cta.lane() / 4 * 8 : 0) < now.count)")
  leave_out(kMmaStaleSums "" "clear(cta, w);" "\n    }\n  }")
  change("if (!cta.last_of(p.came + group_of(cta), static_cast<std::uint32_t>(shares))) return;"
    "if (fault == Fault::kMmaNotAwaited
            ? share_of(cta) > 0
            : !cta.last_of(p.came + group_of(cta), static_cast<std::uint32_t>(shares))) return;")
elseif(kernel STREQUAL mma_attention)
  change("bool mma_attention(" "bool mma_attention_copy(")
  leave_out(kPartNoWait "" "ptx::wait_copies<1>(cta);" "")
  leave_out(kPartTileEarly "" "cta.sync();" "\n      score(cta, u, first, room);")
  leave_out(kPartScoresEarly "" "cta.sync();" "\n      weigh(")
  leave_out(kPartTileOverwritten "first, room, out);\n      " "cta.sync();" "")
  leave_out(kPartEndsEarly "cta.thread(), tile, last, room);\n    " "cta.sync();" "")
  change("(position + lane % 8) * rows.key + lane / 8"
    "(position + lane % 8) * rows.key + (lane / 8 ^ (fault == Fault::kPartWrongLane ? 1 : 0))")
elseif(kernel STREQUAL wgmma_attention)
  change("bool wgmma_attention(" "bool wgmma_attention_copy(")
  leave_out(kGroupNoWait "" "ptx::wait_copies<kTiles - 4>(cta);" "")
  leave_out(kGroupNotFenced "// another\n        " "ptx::fence_copies(cta);" "")
  leave_out(kGroupSumsEarly "" "ptx::wgmma_wait<0>(cta, out);" "")
  change("if (tile > 0) meet(cta);"
    "if (tile > 0 && (fault != Fault::kGroupWeightsEarly || tile != 1)) meet(cta);")
  change("    meet(cta);\n  }\n\n  /// The first blocks" "    meet(cta);
    if (fault == Fault::kGroupWeightsEarly && c.tiles > 1) meet(cta);
  }\n\n  /// The first blocks")
  change("load(cta, c, i + kTiles - 1, ahead, room);"
    "load(cta, c, i + kTiles - (fault == Fault::kGroupOverwritten ? 0 : 1), ahead, room);")
  change("+ row * 8 + (cta.thread() % 8 ^ row % 8);"
    "+ row * 8 + (cta.thread() % 8 ^ (row + (fault == Fault::kGroupWrongLane ? 1 : 0)) % 8);")
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
