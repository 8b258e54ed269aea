#pragma once

#include <functional>
#include <memory>

#include "actors/interfaces.h"
#include "actors/supervisor/supervisor_effects.h"
#include "model/checkpoint.h"

namespace troupe {

/// The head's own reading of its checkpoint, on a thread of its own: it serves none of the weights,
/// but is a witness of what they are. Storage that hangs holds nobody up, not even its end.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::shared_ptr<const Checkpoint> checkpoint);
  ~CheckpointReader();

  /// `done` is called on its thread, unless the reader has ended. What waits behind too many
  /// others is answered with an error at once.
  void read(ReadTensors wanted, std::function<void(TensorsRead)> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe
