#pragma once

#include <string>

#include "model/chat/chat_template_file.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/gguf_vocabulary.h"
#include "runtime/result.h"

namespace troupe {

/// The vocabulary in a file's metadata. kNotFound: it has none.
Result<GgufVocabulary> gguf_vocabulary(const GgufHeader& header);

/// The chat template in a file's metadata, with the text of its BOS and the like. kNotFound: it has
/// none.
Result<ChatTemplateFile> gguf_chat_template(const GgufHeader& header);

}  // namespace troupe
