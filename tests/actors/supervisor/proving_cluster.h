#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/supervisor/head_fixture.h"

namespace troupe::testing {

inline TensorProof proof(std::uint64_t bytes, const std::string& tensor = "t") {
  return {tensor, "model.safetensors", {{bytes, 0}}, Digest{bytes, 1}};
}

/// Read alike, and packed otherwise.
inline TensorProof packed(std::uint64_t how, const std::string& tensor = "t") {
  TensorProof one = proof(1, tensor);
  one.packed = Digest{how, 2};
  return one;
}

/// Three workers on three hosts, and a first version that waits for their Loaded.
struct ProvingCluster : Head {
  explicit ProvingCluster(int workers = 3, SupervisorOptions o = options())
      : Head(with(o, workers)) {
    for (int w = 1; w <= workers; ++w) {
      Join j = good_join(100 + w);
      j.host = "host" + std::to_string(w);
      at.push_back(*join(static_cast<std::uint32_t>(w), j));
      note();
    }
    // A head that was there before waits for workers that kept what they served.
    for (int i = 1; version.value == 0 && i <= 20; ++i) {
      wait(100ms);
      note();
      for (std::size_t w = 0; w < at.size(); ++w)
        from(at[w], Renew{static_cast<std::uint64_t>(i), {{}}, {}, {}, 0});
    }
    REQUIRE(version.value == 1);
  }
  static SupervisorOptions with(SupervisorOptions o, int workers) {
    o.engine.min_devices = workers;
    o.engine.data_parallel_size = workers / o.engine.tensor_parallel_size;
    return o;
  }
  void note() {
    for (const Load& load : sends<Load>()) version = load.placement.version;
    for (const auto& read : all<ReadTensors>(last)) reads.push_back(read);
    for (const auto& keep : all<KeepTensors>(last))
      for (const auto& tensor : keep.tensors) kept[tensor.proof.tensor] = tensor;
    for (const RunCanary& run : sends<RunCanary>()) runs[run.replica] = run.run;
    for (const auto& keep : all<KeepCanary>(last)) kept_canary = keep.canary;
    for (const auto& send : all<Send>(last))
      if (const auto* discard = std::get_if<Discard>(send.message.get()))
        discarded[send.to.node].insert(discard->tensors.begin(), discard->tensors.end());
    activated = activated || sent<Activate>();
    if (const auto news = router_hears<ReplicasChanged>()) routes = *news;
    if (const auto news = router_hears<ReplicasLost>()) lost = *news;
  }
  void reports(std::size_t worker, TensorProof tensor, bool fresh = false) {
    from(at[worker], TensorProofs{fresh, {std::move(tensor)}, {}});
    note();
  }
  void loaded(std::size_t worker) {
    from(at[worker], Loaded{version});
    note();
  }
  void all_loaded() {
    for (std::size_t w = 0; w < at.size(); ++w)
      if (s.members().contains(at[w].node)) loaded(w);
  }
  /// The head answers its oldest reading.
  void head_reads(std::optional<TensorProof> tensor, std::uint64_t bytes = 0) {
    REQUIRE(!reads.empty());
    const ReadTensors read = reads.front();
    reads.erase(reads.begin());
    TensorsRead answer{read.reading, read.fresh, {}, bytes, {}};
    if (tensor)
      answer.tensors.push_back(*tensor);
    else
      answer = {read.reading, read.fresh, {}, bytes, unavailable("no disk"), read.tensors};
    tell(std::move(answer));
    note();
  }
  /// The replica of that place answers what it was asked last; false: it was asked nothing.
  bool gives(std::size_t place, const KnownCanary& given) {
    return answers(place, {0, 0, given.tokens, given.digests});
  }
  bool answers(std::size_t place, CanaryResult result) {
    wait(10ms);
    note();
    const ReplicaPlacement replica = s.active()->replicas.at(place);
    const auto run = runs.extract(replica.id);
    if (run.empty()) return false;
    const Address from{
        replica.node, s.members().at(replica.node).incarnation, {ActorKind::kReplica, replica.id}};
    result.replica = replica.id;
    result.run = run.mapped();
    this->from(from, std::move(result));
    note();
    return true;
  }
  void renew() {
    ++renewals;
    for (const Address& a : at)
      if (s.members().contains(a.node)) from(a, Renew{renewals, {{}}, {}, {}, renewals - 1});
  }
  bool member(std::size_t worker) const {
    const auto found = s.members().find(at[worker].node);
    return found != s.members().end() && found->second.incarnation == at[worker].incarnation;
  }
  std::string newest(const std::string& kind) const {
    for (auto e = s.events().rbegin(); e != s.events().rend(); ++e)
      if (e->kind == kind) return e->text;
    return "";
  }

  std::uint64_t renewals = 0;
  std::vector<Address> at;
  PlacementVersion version;
  std::vector<ReadTensors> reads;
  std::map<std::string, KnownTensor> kept;
  std::map<NodeId, std::set<std::string>> discarded;
  std::map<std::uint32_t, std::uint64_t> runs;  ///< of the canary, by replica
  std::optional<KnownCanary> kept_canary;
  bool activated = false;
  ReplicasChanged routes;
  ReplicasLost lost;
};

}  // namespace troupe::testing
