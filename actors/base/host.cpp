#include "actors/base/host.h"

namespace troupe {

Life make_life(Post& post, Mail ended) {
  return Life(nullptr, [&post, ended = std::move(ended)](const void*) { post.tell(ended); });
}

}  // namespace troupe
