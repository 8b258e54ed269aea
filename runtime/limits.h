#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Every bound of the system and its reason, in one place.
namespace troupe::limits {

using namespace std::chrono_literals;

// --- Membership -------------------------------------------------------------------------------
/// A worker that has not renewed for this long is lost; at the same age it sends nothing any more.
inline constexpr auto kLease = 1200ms;
/// So long it then asks the head to be renewed, and goes on if it is. Covers a head that stands
/// still for seconds, and a lid that was closed.
inline constexpr auto kLeasePause = 5s;
/// A wake-up that comes so much too late means that the process stood still; the head looks often
/// enough to see it before a lease ends.
inline constexpr auto kOversleep = kLease / 4;
/// Its looks are no further apart.
inline constexpr auto kSleepLook = kLease / 8;
/// How often a worker renews, if its devices make progress. Four tries fit into a lease.
inline constexpr auto kRenewEvery = 250ms;
static_assert(kRenewEvery * 4 <= kLease);
static_assert(kOversleep + kSleepLook + kRenewEvery < kLease);
/// How long a connection may take to prove who it is: TLS handshake and first message.
inline constexpr auto kHandshakeDeadline = 3000ms;
/// A worker seeks the head again after this long, doubled up to the maximum.
inline constexpr auto kSeekBackoffMin = 50ms;
inline constexpr auto kSeekBackoffMax = 1000ms;
static_assert(kSeekBackoffMin <= kSeekBackoffMax);
/// Workers of one cluster; far beyond the tens it is made for.
inline constexpr std::size_t kNodesMax = 4096;
/// A worker that shows no progress of a load for this long has failed it; a cold page of a network
/// file system takes seconds.
inline constexpr auto kLoadProgressDeadline = 60s;
/// A load that failed for a passing reason is tried again after this long, doubled up to the
/// maximum.
inline constexpr auto kLoadRetryMin = 500ms;
inline constexpr auto kLoadRetryMax = 30s;
static_assert(kLoadRetryMin <= kLoadRetryMax);
/// A read that was called off and has not ended by then hangs: the next one does not wait for it.
inline constexpr auto kReadPatience = 1s;
/// So many rows are given to a device a layer at a time, fewer as many layers as there are: each
/// that has ended shows that a long step goes on.
inline constexpr std::int64_t kRowsByLayer = 32;
/// Weights wait so long for memory of a device that others are about to give back: those are looked
/// at a last time, and the work that was queued has to end.
inline constexpr auto kDeviceMemoryPatience = 30s;
static_assert(kDeviceMemoryPatience < kLoadProgressDeadline);
/// Reads that may hang at a time; beyond it loads fail at once.
inline constexpr std::size_t kHungReadsMax = 4;
/// How long a worker may take to look at all of its copies again: 1 TiB at 2 GB/s.
inline constexpr auto kProveCopiesDeadline = 600s;
/// Questions of the head for proofs that wait; a newer one is answered with an error.
inline constexpr std::size_t kProvesMax = 64;
/// Tensors whose proofs travel in one message: some 300 bytes each.
inline constexpr std::size_t kProofsPerMessage = 2048;
/// Of a core, for looking at copies in memory; with all else an idle node stays below 1 %.
inline constexpr double kProofShare = 0.005;
/// What is hashed of them in one go: a fraction of a millisecond.
inline constexpr std::size_t kProofSliceBytes = 1u << 20;
/// No copy is looked at more often: a small model costs nothing.
inline constexpr auto kProofPause = 10s;

/// How long the head waits for its workers to end.
inline constexpr auto kStopDeadline = 5s;
/// How long a worker that ends waits for the head to take its leave.
inline constexpr auto kLeaveDeadline = 500ms;
static_assert(kLeaveDeadline < kStopDeadline);
/// Sessions at the head: workers and the programs that ask.
inline constexpr std::size_t kSessionsMax = 2 * kNodesMax;
/// What the status remembers of things that happened; the oldest go first.
inline constexpr std::size_t kClusterEventsMax = 256;
/// Lost nodes that the status still shows.
inline constexpr std::size_t kLostNodesMax = 16;
/// Devices of one worker; four times the largest machines.
inline constexpr std::size_t kDevicesPerNodeMax = 64;

/// How long an actor that has been told to end may take over what it is doing.
inline constexpr auto kActorStopDeadline = 2s;

// --- Control lane -----------------------------------------------------------------------------
/// The largest control message; a frame header that claims more closes the connection. A million
/// prompt tokens take 4 MiB.
inline constexpr std::size_t kControlFrameBytesMax = 16u << 20;
/// Bytes a stranger may send before it has authenticated.
inline constexpr std::size_t kUnauthenticatedBytesMax = 64u << 10;
static_assert(kUnauthenticatedBytesMax <= kControlFrameBytesMax);
/// Connections that have not authenticated; beyond it an older one is closed.
inline constexpr std::size_t kUnauthenticatedConnectionsMax = 256;
/// Unsent bytes of one connection before its peer counts as stuck and is cut off.
inline constexpr std::size_t kControlUnsentBytesMax = 64u << 20;

/// A name or a path within a message, bytes: the longest path that Linux knows.
inline constexpr std::size_t kNameBytesMax = 4096;

// --- Bulk lane --------------------------------------------------------------------------------
/// The largest header of a bulk message: a step plan of many long prompts takes some MiB.
inline constexpr std::size_t kBulkHeaderBytesMax = 16u << 20;
/// The largest tensor beside it: a million rows of 512 bf16 numbers.
inline constexpr std::size_t kBulkPayloadBytesMax = 1u << 30;
/// Frames travel in segments of this size, one posted receive buffer each.
inline constexpr std::size_t kBulkSegmentBytes = 256u << 10;
/// Unsent bytes of one bulk connection before a send is refused.
inline constexpr std::size_t kBulkUnsentBytesMax = 2048ull << 20;
/// How long a peer may take to answer a connection request.
inline constexpr auto kBulkConnectDeadline = 2000ms;
/// How long an expected peer may take to come; it may hear of this node later than this node of it.
inline constexpr auto kBulkExpectDeadline = 5000ms;
static_assert(kBulkExpectDeadline > kBulkConnectDeadline);
/// Received frames that nobody has released yet, all peers; beyond it senders get no more credits.
inline constexpr std::size_t kBulkReceivedBytesMax = 4096ull << 20;
/// Segments a sender may have in flight on one connection: 4 MiB cover 100 Gbit/s over 300 us.
inline constexpr int kBulkCredits = 16;
/// What a stranger may hold the fabric's listener for (see transport/fabric/README.md).
inline constexpr auto kListenerReadTimeout = 50ms;

// --- NCCL ----------------------------------------------------------------------------------------
/// How long tensor-parallel ranks may take to form an NCCL communicator: the first of a process
/// looks for every network and link of the machine.
inline constexpr auto kNcclFormDeadline = 20s;
/// How long an exchange by NCCL may take: all ranks have begun it when it begins, so only its bytes
/// count: a GiB at 3 Gbit/s.
inline constexpr auto kNcclExchangeDeadline = 4s;
/// How long a thread may stay within NCCL once its communicator is broken, and how long an abort
/// may take, beyond which the process ends.
inline constexpr auto kNcclCallDeadline = 500ms;
inline constexpr auto kNcclAbortDeadline = 5s;
/// How often an exchange that takes longer than a look is looked at.
inline constexpr auto kNcclPollMin = 20us;
inline constexpr auto kNcclPollMax = 200us;
static_assert(kNcclPollMin <= kNcclPollMax);
/// After a communicator broke, the next one is formed no sooner, doubled up to the maximum;
/// meanwhile its ranks exchange messages.
inline constexpr auto kNcclRetryMin = 1s;
inline constexpr auto kNcclRetryMax = 60s;
static_assert(kNcclRetryMin <= kNcclRetryMax);
/// Messages that a node may have sent a peer by NCCL without having heard that they came; beyond
/// that they go by the other fabric.
inline constexpr std::size_t kParcelsUnheardMax = 64;
/// The same of the bytes of their tensors, which the sender keeps.
inline constexpr std::size_t kParcelBytesUnheardMax = 256u << 20;
/// The receiver says that they came after so many,
inline constexpr std::size_t kParcelsTell = 8;
/// or after so many bytes.
inline constexpr std::size_t kParcelBytesTell = 16u << 20;
static_assert(kParcelsTell < kParcelsUnheardMax && kParcelBytesTell < kParcelBytesUnheardMax);
/// The rest of such a message, as it goes within another.
inline constexpr std::size_t kParcelHeaderBytesMax = kBulkHeaderBytesMax / 2;
/// Pinned memory of a device that nobody holds, kept for what travels next.
inline constexpr std::size_t kPinnedSpareBytes = 256u << 20;

// --- Requests ---------------------------------------------------------------------------------
inline constexpr std::size_t kRequestsMax = 16384;  ///< accepted and unfinished, per head
/// How long a door waits for the Router to accept or refuse a request.
inline constexpr auto kRouterAnswerDeadline = 10s;
inline constexpr std::size_t kChoicesMax = 128;                 ///< `n` of one request
inline constexpr std::size_t kSequencesMax = 4 * kRequestsMax;  ///< choices of all requests
static_assert(kSequencesMax >= kChoicesMax);
/// How often a sequence is handed to a replica again before its request fails.
inline constexpr std::uint32_t kReplaysMax = 8;
/// Stop strings of one request; every token is matched against all of them.
inline constexpr std::size_t kStopStringsMax = 16;
inline constexpr std::size_t kStopStringBytesMax = 1024;
inline constexpr std::size_t kTopLogprobsMax = 20;  ///< the bound of OpenAI's API
/// What a request says of the tokens of its answer (TokenRules), in bytes, and its bias.
inline constexpr std::size_t kTokenRulesBytesMax = 1u << 20;
inline constexpr float kBiasMax = 100.0f;  ///< the bound of OpenAI's API
/// `bad_words` of one request; tokens of one of its lists, which are looked through at every token.
inline constexpr std::size_t kBadWordsMax = 256;
inline constexpr std::size_t kTokenListMax = 65536;  ///< half of a large vocabulary
/// Grammars that are kept, with the masks that they have found out, and that wait to be compiled.
/// Most take a few milliseconds while the prompt is computed; a token waits for it, no step does.
inline constexpr std::size_t kGrammarsKeptMax = 64;
inline constexpr std::size_t kGrammarsWaitingMax = 4096;
/// Larger ones, which take up to seconds, are written and compiled on threads of their own, so that
/// small ones need not wait for them.
inline constexpr std::size_t kSmallGrammarBytesMax = 64u << 10;
/// Tokens of answers that came from elsewhere and are followed again, in one look at logits: each
/// takes up to 0.1 ms of the device's thread. Of one answer there is always room for as many as a
/// step adds.
inline constexpr std::size_t kFollowedTokensMax = 1024;
inline constexpr std::size_t kFollowedTokensLeast = 8;
/// Words of 4 bytes of all accepted requests together, before a new one is refused: a token is one,
/// a log-probability with its token two.
inline constexpr std::size_t kJournalWordsMax = 64u << 20;
/// One record of the journal on storage: the longest prompt with room.
inline constexpr std::size_t kJournalRecordBytesMax = 64u << 20;
/// Records that wait for storage, before it counts as failing.
inline constexpr std::size_t kJournalQueueBytesMax = 128u << 20;
/// How long news of a request may wait for its acceptance to be on storage, before it counts as
/// failing.
inline constexpr auto kJournalPatience = 2s;
/// A journal that could not be written is begun again at once, but not more often than this.
inline constexpr auto kJournalRetry = 5s;
/// What the journal has grown by, beyond twice what it holds, before it is begun again.
inline constexpr std::size_t kJournalSlackWords = 4u << 20;
/// Words of finished requests that are kept for those who ask again, the newest,
inline constexpr std::size_t kFinishedWordsMax = 32u << 20;
/// and for how long.
inline constexpr auto kFinishedKept = std::chrono::hours(1);

// --- Model ------------------------------------------------------------------------------------
inline constexpr std::size_t kSafetensorsHeaderBytesMax = 100u << 20;  ///< the format's own bound
/// What may stand before the tensors of a GGUF file; real ones have up to 15 MiB, of tokens and
/// merges.
inline constexpr std::size_t kGgufHeadBytesMax = 64u << 20;
inline constexpr std::size_t kConfigBytesMax = 16u << 20;  ///< config.json; real ones take 2 KiB
inline constexpr std::size_t kTokenizerBytesMax = 256u << 20;  ///< real ones take 10 MiB
/// Stages of a tokenizer's normalizer, and of its pre-tokenizer; published ones have up to eight.
inline constexpr std::size_t kTokenizerStagesMax = 64;
/// Bytes that a stage of the normalizer looks for, and that it puts in their place.
inline constexpr std::size_t kStageTextBytesMax = 1024;
/// Normalizing may make a text so many times as long, and so many bytes longer: compatibility
/// decomposition makes up to 11 bytes of one, and a stage may put some before each text.
inline constexpr std::size_t kTextGrowthMax = 16;
inline constexpr std::size_t kTextGrowthBytesMax = 4096;
/// Tokens that a tokenizer puts before and behind a text; published ones put one or two.
inline constexpr std::size_t kTemplateTokensMax = 64;
/// Nodes of the tree in which added tokens are found, some 60 bytes each: a byte of them takes one.
inline constexpr std::size_t kAddedTokenNodesMax = 4u << 20;
inline constexpr std::int64_t kDimensionMax = 1 << 24;  ///< any size in config.json
/// Layers, experts of a layer and experts of a token: several times the largest published models.
inline constexpr int kLayersMax = 1024;
/// Sums of four and more tensor-parallel ranks from this size on are made by each for its own rows:
/// below it, a second exchange takes longer than the bytes that it saves.
inline constexpr std::size_t kScatterBytes = 32u << 10;
/// How far one tensor-parallel rank may be ahead of another in a step: exchanges of all layers.
inline constexpr std::uint32_t kExchangesAheadMax = 4 * kLayersMax;
/// How long a job looks for the other ranks' parts before it leaves its thread to other jobs: about
/// what a message takes between two processes of a machine.
inline constexpr auto kRankLook = 50us;
inline constexpr int kExpertsMax = 65536;  ///< a 16-bit number holds an expert
inline constexpr int kTopKMax = 64;
/// Products that tensor parallelism may split are summed as this many slices in a binary tree.
inline constexpr int kSumSlices = 8;
/// So many devices may share a shard's layers, each with some of the slices.
inline constexpr std::uint32_t kTensorRanksMax = kSumSlices;

/// Numerics that a node says it can run.
inline constexpr std::size_t kNumericsMax = 16;
/// Messages that may wait for one actor; beyond it a sender gets an error.
inline constexpr std::size_t kMailboxMax = 1u << 18;
/// Room beyond it for what only the node itself can say: a shard has at most one such message a
/// step and peer, an agent one a piece of weights that it reads.
inline constexpr std::size_t kMailboxReserved = 1u << 18;

// --- Steps ------------------------------------------------------------------------------------
/// Who works on a step, or on rows of one, and needs longer says so this often.
inline constexpr auto kProgressEvery = 1s;
/// A step of which its Replica has heard nothing for this long is failed, however slow its devices
/// are: many signs of progress must have been lost, or a thread has stood still for as long.
inline constexpr auto kStepSilence = 10s;
/// The same of a question to an expert group; another copy is asked then.
inline constexpr auto kExpertSilence = 10s;
static_assert(kProgressEvery * 5 <= kStepSilence && kProgressEvery * 5 <= kExpertSilence);
static_assert(kNcclExchangeDeadline + kNcclCallDeadline < kStepSilence);
/// A step whose rows nobody computes (their experts are on no node that can be reached, or refuse)
/// is failed after this long; covers the load of a lost expert from a cold file system.
inline constexpr auto kStepDeadline = 60s;
/// A canary that has not come to its end for this long has failed: it is run once a minute.
inline constexpr auto kCanaryDeadline = 45s;
static_assert(kExpertSilence < kStepDeadline);
/// The longest that one step may take in all, whatever progress it makes.
inline constexpr auto kStepTimeMax = 600s;
static_assert(kStepDeadline < kStepTimeMax);
/// What a step with rows of prompts is to take: a prompt's chunks are cut to it, by the measured
/// time of the steps before. While others stream beside it every step is a pause for them: it may
/// be so many times what their steps take alone, so that the longest pauses stay below three times.
inline constexpr auto kStepTarget = 500ms;
inline constexpr double kStepStretchShared = 2.1;
/// The same as long as none of their steps has been measured.
inline constexpr auto kStepTargetShared = 100ms;
static_assert(kStepTargetShared < kStepTarget && kStepTarget < kProgressEvery);
/// A chunk's rows: the least, below which a prompt's overhead is all that is computed (16 of them
/// behind a context of 4,096 took more than three times what others' steps take alone), and how
/// many are tried before anything has been measured.
inline constexpr std::int32_t kChunkRowsLeast = 8;
inline constexpr std::int32_t kChunkRowsFirst = 256;
/// What a step may hold, so that its plan and its result fit into the headers of their frames. A
/// row takes a token and a target in the plan, and twenty likely tokens in the result; a sequence
/// its sampling parameters, and a sentence if it is in trouble.
inline constexpr std::int32_t kStepRowsMax = 32768;
inline constexpr std::int32_t kStepSequencesMax = 8192;
/// KV blocks of one replica, and the most that the tables of one plan name; each sequence names
/// those that it shares. Of 16 positions they hold 32 million.
inline constexpr std::int32_t kStepBlocksMax = 2 << 20;
inline constexpr std::size_t kStepSequenceBytesMax = 512;
/// Rules of sequences that the shards do not know yet; of one there is always room.
inline constexpr std::size_t kStepRulesBytesMax = 2u << 20;
static_assert(kTokenRulesBytesMax <= kStepRulesBytesMax);
inline constexpr std::size_t kStepResultBytesMax = 24 + 8 * (kTopLogprobsMax + 2);
static_assert(kStepBlocksMax * 4u + kStepRowsMax * 8u + kStepSequencesMax * kStepSequenceBytesMax +
                  kStepRulesBytesMax <
              kBulkHeaderBytesMax);
static_assert((kStepRowsMax + kStepSequencesMax) * kStepResultBytesMax +
                  kStepSequencesMax * kStepSequenceBytesMax <
              kBulkHeaderBytesMax);
/// Rows of an express step, which takes memory of its own beside the others.
inline constexpr std::int32_t kExpressRowsMax = 512;
/// Steps that a shard knows of at a time; a replica has at most one a pipeline stage in flight, and
/// an express step.
inline constexpr std::size_t kStepsInFlightMax = 64;
/// Questions that one expert group has not answered; a shard asks at most one a step and group.
inline constexpr std::size_t kDispatchesWaitingMax = 8192;
/// Every compute thread answers all questions whose answers are known within this time.
inline constexpr auto kKnownAnswersEvery = 60s;
/// The first time takes milliseconds; a device that needs as long as this cannot be used.
inline constexpr auto kProveDeadline = 30s;
/// Jobs that wait for one device; beyond it a new one is refused.
inline constexpr std::size_t kComputeQueueMax = 4096;

// --- HTTP -------------------------------------------------------------------------------------
/// One body: a million token ids as text, and room; more is refused with 413.
inline constexpr std::size_t kHttpBodyBytesMax = 32u << 20;
/// Larger ones are read and tokenised one after the other, so that small ones need not wait for
/// them.
inline constexpr std::size_t kHttpSmallBodyBytesMax = 256u << 10;
static_assert(kHttpSmallBodyBytesMax <= kHttpBodyBytesMax);
/// Request line and header fields together.
inline constexpr std::size_t kHttpHeaderBytesMax = 64u << 10;
/// Request line and header fields; other servers take 100 fields. A line of 4 bytes takes 100 in
/// memory.
inline constexpr std::size_t kHttpHeaderLinesMax = 256;
/// A body in chunks may have so many bytes beside each of its own, and kHttpHeaderBytesMax: chunks
/// of one byte whose sizes are written with ten digits.
inline constexpr std::size_t kHttpFramingFactor = 16;
/// Open connections: a stream each for kRequestsMax; more are answered with 503.
inline constexpr std::size_t kHttpConnectionsMax = 16384;
static_assert(kHttpConnectionsMax >= kRequestsMax);
/// From the first byte of a request to the end of its header; slower clients are cut off.
inline constexpr auto kHttpHeaderDeadline = 10s;
/// How long a body may take to arrive; the largest at 4 Mbit/s.
inline constexpr auto kHttpBodyDeadline = 60s;
/// How long a connection may wait for its next request; longer than common proxies keep theirs.
inline constexpr auto kHttpIdleDeadline = 75s;
/// Bodies being received or read, all connections together; beyond it requests get 503.
inline constexpr std::size_t kHttpBodiesBytesMax = 512u << 20;
/// One part of so many of it is for small bodies alone, so that a few large ones, however slowly
/// they come, keep nobody else out.
inline constexpr std::size_t kHttpSmallBodiesPart = 8;
static_assert(kHttpBodiesBytesMax / kHttpSmallBodiesPart >= kHttpSmallBodyBytesMax);
/// How long a client may take to accept the next 256 KiB; covers 70 kbit/s.
inline constexpr auto kHttpWriteDeadline = 30s;
/// Of one stream, generated but not accepted by its client; a slower reader is cut off.
inline constexpr std::size_t kHttpUnsentBytesMax = 4u << 20;
/// A stream whose request was accepted and has no news says so much later that it is there (by then
/// what is refused has been), and from then on that it waits: proxies give up after 60 s without a
/// byte, some after 30.
inline constexpr auto kHttpStreamHeadAfter = 1s;
inline constexpr auto kHttpStreamCommentEvery = 15s;
/// What the tokens and log-probabilities of one answer that is not streamed may take until it is
/// sent; a request that could need more is refused. A context of 160k tokens with 20 alternatives.
/// Of /tokenize it is 8 million tokens.
inline constexpr std::size_t kHttpAnswerBytesMax = 32u << 20;
/// The same of all answers, with their texts; beyond it newcomers get 429.
inline constexpr std::size_t kHttpAnswersBytesMax = 512u << 20;
static_assert(kHttpAnswerBytesMax <= kHttpAnswersBytesMax);
/// Metrics, the cluster's state and the like that wait to be read, if they are not small: all
/// together, beyond which more of them get 429. Fifty of a cluster with 15,000 experts.
inline constexpr std::size_t kHttpViewsBytesMax = 64u << 20;
/// Smaller ones are let through, so that there is always room to see what goes on.
inline constexpr std::size_t kHttpSmallViewBytesMax = 64u << 10;
/// An answer is written as JSON in pieces of about this size, the next when the client took one.
inline constexpr std::size_t kHttpPieceBytes = 256u << 10;
/// How long a connection that got an error for its body is drained, so that it can read the error.
inline constexpr auto kHttpLingerDeadline = 2s;
/// The value of Idempotency-Key; a random UUID takes 36.
inline constexpr std::size_t kHttpIdempotencyKeyBytesMax = 255;
/// The id of a request in a path; those that this server draws take 41 at most.
inline constexpr std::size_t kHttpRequestIdBytesMax = 64;
/// A client's own X-Request-Id, which is echoed; a trace's take 55.
inline constexpr std::size_t kHttpOwnRequestIdBytesMax = 128;
/// Arrays and objects within each other; the parser's stack is bounded by it.
inline constexpr int kJsonDepthMax = 64;
/// Values in one body: a million token ids and more; keeps the parsed form within some 200 MB.
inline constexpr std::size_t kJsonValuesMax = 2u << 20;
inline constexpr std::size_t kPromptsMax = 1024;      ///< of one completions request
inline constexpr std::size_t kHttpChoicesMax = 4096;  ///< prompts times `n` of one request
inline constexpr std::size_t kMessagesMax = 16384;    ///< of one chat request
/// Tools of one chat request, and their text: OpenAI takes 128. What a parser has to know of them
/// is kept with the answer.
inline constexpr std::size_t kToolsMax = 1024;
inline constexpr std::size_t kToolsBytesMax = 1u << 20;

// --- Threads ----------------------------------------------------------------------------------
/// Threads of one pool; a socket has fewer cores.
inline constexpr int kThreadsMax = 256;

}  // namespace troupe::limits
