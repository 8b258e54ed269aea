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
/// The agent takes its turns and no device hangs: what renews the lease of a member. Once a second
/// at least, also while it seeks a head.
struct ShowAlive {};

/// What WorkerMachine asks for, in the order in which it is carried out; see WorkerHands.
using WorkerEffects =
    Effects<ConnectHead, CloseHead, SeekAlso, SendAs, JoinedCluster, LeaveAddress, HoldMail,
            EndHold, InspectCheckpoint, ProveTensors, ProveCopies, WorkerExit, LogLine, FencePeer,
            ForgetPeer, ExpectPeer, ConnectPeer, AskPeer, MeasurePeer, EndMeasuring, ReadWeights,
            BuildPart, CancelReading, FreeWeights, ProbeDevices, ShowAlive, StartGroup, StartShard,
            StartReplica, EndActor, PublishExperts>;

}  // namespace troupe
