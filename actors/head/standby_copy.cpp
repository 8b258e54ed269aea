#include "actors/head/standby_copy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "actors/router/journal_words.h"

namespace troupe {
namespace {

/// Prompts and tokens of one message, about: far below what a frame may have.
constexpr std::size_t kCopyWordsMax = 256u << 10;
constexpr std::size_t kLinesBytesMax = 1u << 20;

}  // namespace

void StandbyCopy::begin(SessionHub& hub, const Address& self) {
  hub_ = &hub;
  self_ = self;
}

/// A copy with a gap is none: the session's end tells the Supervisor.
void StandbyCopy::send(std::uint32_t session, MessagePtr message) {
  const Status sent = hub_->send(session, {self_, hub_->address_of(session), std::move(message)});
  if (!sent.ok()) hub_->close(session, "the copy has a gap: " + sent.error().message);
}

void StandbyCopy::copy(const KeepRecords& records) {
  JournalCopy copy{records.file, 0, records.begins, records.tells, false, {}};
  std::size_t words = 0;
  bool parts = false;  // then what is in the first ones must be kept, too
  for (const JournalRecord& record : records.records) {
    if (since(record) > protocol_ && may_be_left_out(record)) continue;
    const std::size_t more = record_words(record);
    if (words > 0 && words + more > kCopyWordsMax) {
      send(records.copy_to,
           message_of(std::exchange(copy, {records.file, 0, false, false, false, {}})));
      words = 0;
      parts = true;
    }
    words += more;
    copy.records.push_back(record);
  }
  copy.mark = records.mark;
  copy.tells = records.tells || parts;
  copy.completes = records.completes;
  send(records.copy_to, message_of(std::move(copy)));
}

void StandbyCopy::copy_known(std::uint32_t session, StateKeeper& keeper,
                             const KeeperThread::Say& tell) {
  if (session == 0) {
    (void)keeper.known_lines(nullptr);
    return;
  }
  const auto say = [this, session, tell](bool begins, std::string some) {
    tell([&] { send(session, message_of(KnownLines{begins, std::move(some)})); });
  };
  const std::string lines =
      keeper.known_lines([say](std::string added) { say(false, std::move(added)); });
  std::size_t begin = 0;
  do {
    std::size_t end = std::min(begin + kLinesBytesMax, lines.size());
    // Lines are far shorter than a message.
    if (end < lines.size()) end = std::max(lines.rfind('\n', end - 1) + 1, begin + 1);
    say(begin == 0, lines.substr(begin, end - begin));
    begin = end;
  } while (begin < lines.size());
}

}  // namespace troupe
