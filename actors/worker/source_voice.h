#pragma once

#include <mutex>
#include <utility>

#include "actors/base/post.h"
#include "actors/interfaces.h"

namespace troupe {

/// How jobs of a WeightSource speak to its agent. A job that hangs may wake up when the post is
/// gone: by then the voice has been ended.
class SourceVoice {
 public:
  explicit SourceVoice(Post& post) : post_(&post) {}

  void listen(const Ref<NodeAgentInbox>& agent) {
    std::lock_guard lock(mutex_);
    agent_ = agent;
  }
  void end() {
    std::lock_guard lock(mutex_);
    post_ = nullptr;
  }
  template <class T>
  void tell(T news) {
    std::lock_guard lock(mutex_);
    if (post_) post_->tell(agent_, std::move(news));
  }

 private:
  std::mutex mutex_;
  Post* post_;  // guarded by mutex_, as the next
  Ref<NodeAgentInbox> agent_;
};

}  // namespace troupe
