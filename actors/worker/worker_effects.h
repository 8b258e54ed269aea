#pragma once

#include <memory>

#include "actors/node_agent/agent_effects.h"
#include "actors/worker/serving_effects.h"
#include "actors/worker/weight_source.h"

namespace troupe {

// What a worker asks of its WeightSource.

struct ReadWeights {
  ReadOrder order;
};
struct BuildPart {
  std::shared_ptr<Preparation> preparation;
};
/// Nothing that was ordered is wanted any more.
struct CancelReading {};
struct FreeWeights {
  Garbage garbage;
};

/// A membership is over: nobody has its address any more.
struct LeaveAddress {
  NodeId id;
  Incarnation incarnation;
};
/// Every device is to measure its speed.
struct ProbeDevices {};

/// What WorkerMachine asks for, in the order in which it is carried out; see WorkerHands.
using WorkerEffects =
    Effects<ConnectHead, CloseHead, SendAs, JoinedCluster, LeaveAddress, HoldMail, EndHold,
            InspectCheckpoint, ProveTensors, ProveCopies, WorkerExit, LogLine, FencePeer,
            ForgetPeer, ExpectPeer, ConnectPeer, AskPeer, ReadWeights, BuildPart, CancelReading,
            FreeWeights, ProbeDevices, StartGroup, StartShard, StartReplica, EndActor,
            PublishExperts>;

}  // namespace troupe
