# A message on its way: from whom, to whom, what. New kinds get new numbers at the end.
@0xa2d66502ff39eacf;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

using Client = import "client.capnp";
using Experts = import "experts.capnp";
using Formation = import "formation.capnp";
using Links = import "links.capnp";
using Parcels = import "parcels.capnp";
using Placement = import "placement.capnp";
using Proofs = import "proofs.capnp";
using Request = import "request.capnp";
using Standby = import "standby.capnp";
using Step = import "step.capnp";
using import "error.capnp".Error;
using import "ids.capnp".Address;

struct Undeliverable {
  to @0 :Address;
  kind @1 :UInt32;
  reference @2 :UInt64;
  error @3 :Error;
}

# Bytes of a text that names something (path, host, version) and of one that explains something.
const nameBytesMax :UInt32 = 4096;
const sentenceBytesMax :UInt32 = 65536;

struct Envelope {
  from @0 :Address;
  to @1 :Address;
  union {
    none @2 :Void;
    greeting @3 :Formation.Greeting;
    join @4 :Formation.Join;
    refused @5 :Formation.Refused;
    welcome @6 :Formation.Welcome;
    renew @7 :Formation.Renew;
    renewed @8 :Formation.Renewed;
    leave @9 :Formation.Leave;
    load @10 :Placement.Load;
    loadProgress @11 :Placement.LoadProgress;
    loaded @12 :Placement.Loaded;
    loadFailed @13 :Placement.LoadFailed;
    activate @14 :Placement.Activate;
    retire @15 :Placement.Retire;
    stop @16 :Formation.Stop;
    peerUnreachable @17 :Formation.PeerUnreachable;
    submit @18 :Request.Submit;
    cancel @19 :Request.Cancel;
    sequenceEvents @20 :Request.SequenceEvents;
    stepPlan @21 :Step.StepPlan;
    hidden @22 :Step.Hidden;
    stepResult @23 :Step.StepResult;
    stepFailed @24 :Step.StepFailed;
    stepAbort @25 :Step.StepAbort;
    dispatch @26 :Experts.Dispatch;
    expertOutput @27 :Experts.ExpertOutput;
    notHere @28 :Experts.NotHere;
    clientHello @29 :Client.ClientHello;
    clientWelcome @30 :Client.ClientWelcome;
    statusQuery @31 :Client.StatusQuery;
    statusReply @32 :Client.StatusReply;
    stopQuery @33 :Client.StopQuery;
    stopReply @34 :Client.StopReply;
    clientGenerate @35 :Client.ClientGenerate;
    clientCancel @36 :Client.ClientCancel;
    clientGeneration @37 :Client.ClientGeneration;
    subscribe @38 :Client.Subscribe;
    clusterNews @39 :Client.ClusterNews;
    undeliverable @40 :Undeliverable;
    activated @41 :Placement.Activated;
    memberLost @42 :Formation.MemberLost;
    connect @43 :Placement.Connect;
    expertCounts @44 :Placement.ExpertCounts;
    avoid @45 :Placement.Avoid;
    drainQuery @46 :Client.DrainQuery;
    rebalanceQuery @47 :Client.RebalanceQuery;
    operationProgress @48 :Client.OperationProgress;
    peerPing @49 :Formation.PeerPing;  # no more: the fabric asks for signs of life
    tensorProofs @50 :Proofs.TensorProofs;
    prove @51 :Proofs.Prove;
    proofFailed @52 :Proofs.ProofFailed;
    runCanary @53 :Proofs.RunCanary;
    canaryResult @54 :Proofs.CanaryResult;
    stepProgress @55 :Step.StepProgress;
    expertProgress @56 :Experts.ExpertProgress;
    crashReport @57 :Client.CrashReport;
    discard @58 :Proofs.Discard;
    forgetPrefixes @59 :Proofs.ForgetPrefixes;
    rankPart @60 :Step.RankPart;
    rankReady @61 :Step.RankReady;
    rankGo @62 :Step.RankGo;
    rankGroup @63 :Step.RankGroup;
    parcel @64 :Parcels.Parcel;
    parcelGroup @65 :Parcels.ParcelGroup;
    follow @66 :Standby.Follow;
    succession @67 :Standby.Succession;
    knownLines @68 :Standby.KnownLines;
    journalCopy @69 :Standby.JournalCopy;
    followed @70 :Standby.Followed;
    successor @71 :Standby.Successor;
    successorKnown @72 :Standby.SuccessorKnown;
    standing @73 :Standby.Standing;
    pledge @74 :Standby.Pledge;
    headReturns @75 :Standby.HeadReturns;
    networkQuery @76 :Links.NetworkQuery;
    networkPlan @77 :Links.NetworkPlan;
    pairReport @78 :Links.PairReport;
    measureLink @79 :Links.MeasureLink;
    endMeasure @80 :Links.EndMeasure;
    linkMeasured @81 :Links.LinkMeasured;
    linkProbe @82 :Links.LinkProbe;
    linkEcho @83 :Links.LinkEcho;
  }
}
