#include "actors/expert_group/forward_pass.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "runtime/log.h"

namespace troupe {

ForwardPass::ForwardPass(const ModelConfig& model, Numerics numerics, CpuDevice& device)
    : row_bytes_(row_bytes(model, numerics)),
      device_(device),
      forward_(model, numerics, device.threads()) {}

std::vector<PassAnswer> ForwardPass::run(std::vector<Envelope> questions) {
  std::vector<PassAnswer> answers;
  answers.reserve(questions.size());
  std::map<std::int32_t, std::vector<Envelope>> by_layer;
  for (auto& question : questions)
    by_layer[std::get<Dispatch>(*question.message).layer].push_back(std::move(question));
  for (const auto& [layer, asked] : by_layer) {
    const auto refuse = [&, &asked = asked](const std::string& reason) {
      for (const auto& question : asked) answers.push_back(not_here(question, {}, reason));
    };
    if (const std::string failed = device_.failed(); !failed.empty()) {
      refuse(failed);
      continue;
    }
    try {
      auto found = run_layer(layer, asked);
      std::move(found.begin(), found.end(), std::back_inserter(answers));
    } catch (const ThreadPool::Interrupted& e) {
      refuse(e.what());
    } catch (const std::bad_alloc&) {
      logger().error("experts of layer {} could not be computed: memory is short", layer);
      refuse("memory is short");
    } catch (const std::exception& e) {
      // What a kernel throws will not be better the next time.
      device_.fail(e.what());
      refuse(e.what());
    }
  }
  return answers;
}

std::vector<PassAnswer> ForwardPass::run_layer(std::int32_t layer,
                                               const std::vector<Envelope>& questions) {
  const auto experts = device_.experts();
  std::vector<PassAnswer> answers;
  answers.reserve(questions.size());
  std::vector<const std::byte*> rows;
  std::vector<std::int32_t> ids;
  std::vector<std::byte*> outputs;
  for (const auto& question : questions) {
    const auto& dispatch = std::get<Dispatch>(*question.message);
    std::vector<std::int32_t> absent;
    for (const auto& pair : dispatch.pairs)
      if (!experts->has({layer, pair.expert})) absent.push_back(pair.expert);
    if (!absent.empty()) {
      answers.push_back(not_here(question, std::move(absent), "this device does not hold them"));
      continue;
    }
    auto buffer = std::make_shared<Buffer>(dispatch.pairs.size() * row_bytes_);
    for (std::size_t i = 0; i < dispatch.pairs.size(); ++i) {
      rows.push_back(dispatch.payload.bytes.data() + dispatch.pairs[i].row * row_bytes_);
      ids.push_back(dispatch.pairs[i].expert);
      outputs.push_back(buffer->data() + i * row_bytes_);
    }
    ExpertOutput output{dispatch.call, static_cast<std::uint32_t>(dispatch.pairs.size()),
                        Payload::of(std::move(buffer))};
    answers.push_back({question, message_of(std::move(output))});  // its bytes are written below
  }
  std::vector<std::int32_t> missing;
  forward_.run(*experts, {layer, rows.data(), ids, outputs.data()}, missing);
  return answers;
}

}  // namespace troupe
