#pragma once

#include "model/spec/spec_builder.h"
#include "runtime/result.h"

/// One file each. They read the config into `b.spec`, whose architecture is set; b.in keeps errors.
namespace troupe {

Status read_deepseek(SpecBuilder& b);  ///< V2, V3, R1, Kimi K2
Status read_llama(SpecBuilder& b);
Status read_qwen(SpecBuilder& b);      ///< Qwen 2, 2.5, 3, 3 MoE
Status read_glm4_moe(SpecBuilder& b);  ///< GLM 4.5 to 4.7
Status read_gpt_oss(SpecBuilder& b);

}  // namespace troupe
