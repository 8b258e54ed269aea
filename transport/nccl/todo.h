#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::nccl {

/// What is decided with a lock held and done once it is let go, since it may call back.
using Todo = std::vector<std::function<void()>>;

inline void carry_out(const Todo& todo) {
  for (const auto& act : todo) act();
}

/// Calls act(owner, todo) with the owner's lock held, unless the owner is gone or `current(owner)`
/// is false; then carries out. For what a communicator tells: it counts as long as it is in use.
template <class Owner, class Current, class Act>
void act_if(const std::weak_ptr<Owner>& owner, std::mutex Owner::*mutex, const Current& current,
            const Act& act) {
  const auto self = owner.lock();
  if (!self) return;
  Todo todo;
  {
    std::lock_guard lock((*self).*mutex);
    if (current(*self)) act(*self, todo);
  }
  carry_out(todo);
}

}  // namespace troupe::nccl
