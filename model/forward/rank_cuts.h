#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/stream.h"
#include "kernels/tensor.h"
#include "model/forward/step.h"
#include "model/spec/model_spec.h"
#include "runtime/buffer.h"

namespace troupe {

/// The cuts where tensor-parallel ranks need each other's numbers: what a rank sends there
/// (Step::exchange), and what it makes of what came. All ranks cut a step at the same points.
///
/// Rows of a step are dealt out in order: a rank sends its own ones to the experts, and adds up
/// what comes back for them.
class RankCuts {
 public:
  explicit RankCuts(const ModelSpec& model);

  /// All ranks are in this process, and read what goes out where it was computed.
  void stay_on_devices(bool stay) { stays_ = stay; }
  bool stays_on_device() const { return stays_; }

  bool alone() const { return model_.rank.alone(); }
  bool leads() const { return model_.rank.rank == 0; }
  std::int64_t first_row(std::int64_t rows, std::uint32_t rank) const {
    return rows * rank / model_.rank.size;
  }
  std::int64_t own_rows(std::int64_t rows, std::uint32_t rank) const {
    return first_row(rows, rank + 1) - first_row(rows, rank);
  }
  /// Rows of a step that are this rank's.
  std::int64_t first_row(std::int64_t rows) const { return first_row(rows, model_.rank.rank); }
  std::int64_t own_rows(std::int64_t rows) const { return own_rows(rows, model_.rank.rank); }

  /// Room for what this rank has to say next: [rows, width] float32. One of the calls below that
  /// send follows.
  kernels::Tensor outgoing(kernels::Stream& stream, Step& step, std::int64_t rows,
                           std::int64_t width);

  /// The same in bytes: Step::own_at, where ops have them. And, when they are written, a new
  /// exchange, in which nothing goes anywhere yet.
  void room(kernels::Stream& stream, Step& step, std::size_t bytes);
  void settle(kernels::Stream& stream, Step& step) const;
  /// Some of what goes out, for another rank.
  Payload own_part(kernels::Stream& stream, const Step& step, std::size_t at,
                   std::size_t bytes) const;

  /// Whether a sum that all ranks need is made by each for its own rows, which it then sends to the
  /// others: two exchanges, but each rank receives twice the rows instead of once for every rank.
  bool scatters(std::int64_t rows) const;

  /// What goes out is one of `ways` parts of a sum over all rows. All ranks get all parts, or those
  /// of their own rows.
  void send_sum(kernels::Stream& stream, Step& step, std::uint32_t ways, bool own_rows_only) const;
  /// y = what they add up to, plus the bias. `first_row`: of y, in what goes out.
  void take_sum(kernels::Stream& stream, Step& step, std::uint32_t ways, const float* bias,
                const kernels::Tensor& y, std::int64_t first_row = 0) const;

  /// What goes out are this rank's own rows, and all ranks get them.
  void send_rows(kernels::Stream& stream, Step& step) const;
  void take_rows(kernels::Stream& stream, const Step& step, const kernels::Tensor& all) const;

  /// What goes out are the rows whose tokens are in this rank's part of the vocabulary, in order.
  void send_embedded(kernels::Stream& stream, Step& step) const;
  void take_embedded(kernels::Stream& stream, Step& step, const kernels::Tensor& all) const;

  /// What goes out is this rank's part of the logits. The leading rank gets all parts; the others
  /// hear from it, so that none is ahead.
  void send_logits(kernels::Stream& stream, Step& step) const;
  void take_logits(kernels::Stream& stream, Step& step,
                   const kernels::Tensor& all) const;  ///< [logit_rows, vocab]

  /// Where every attention is a sum over all ranks, none ends a step before another has stored its
  /// keys and values. Elsewhere the leading rank is told when the others are done.
  bool in_step() const { return in_step_; }
  void send_done(Step& step) const;

  /// This rank's part of the vocabulary.
  std::int32_t first_token() const { return first_token(own_part()); }
  std::int32_t own_tokens() const { return first_token(own_part() + 1) - first_token(); }
  bool has_token(TokenId token) const {
    return token >= first_token() && token < first_token() + own_tokens();
  }

 private:
  std::uint32_t own_part() const;
  std::int32_t first_token(std::uint32_t part) const;
  std::uint32_t part(std::uint32_t rank, std::uint32_t ways) const;
  bool speaks(std::uint32_t rank, std::uint32_t ways) const;
  void clear(Step& step) const;

  const ModelSpec& model_;
  const bool in_step_;
  bool stays_ = false;
  /// Of which those that nobody reads are reused: express steps are small, and theirs stay so.
  std::vector<std::shared_ptr<RankOwn>> owns_, express_owns_;
};

}  // namespace troupe
