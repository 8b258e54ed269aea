#include "model/grammar/vocabulary.h"

#include <string_view>
#include <utility>

namespace troupe {

std::shared_ptr<const Vocabulary> Vocabulary::make(std::vector<std::string> texts,
                                                   const std::vector<bool>& special,
                                                   TokenId vocab_size) {
  auto made = std::make_shared<Vocabulary>();
  made->texts = std::move(texts);
  made->texts.resize(static_cast<std::size_t>(vocab_size));
  std::vector<std::string_view> words(made->texts.begin(), made->texts.end());
  for (std::size_t id = 0; id < words.size(); ++id)
    if (id < special.size() && special[id]) words[id] = {};
  made->trie = TokenTrie::make(words, vocab_size);
  return made;
}

}  // namespace troupe
