#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/gateway/request_form.h"
#include "actors/router/journal.h"
#include "transport/journal_records.h"

/// A record of a journal, and the form in its request's name: whatever they are, they end in
/// something that can be written again, or in an error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const auto record =
      transport::decode_record(std::span(reinterpret_cast<const std::byte*>(data), size));
  if (record.ok()) {
    assert(transport::encode(*record).ok());
    Journal journal;
    if (journal.fits(*record)) journal.append(*record);
    Journal::Place place;
    std::vector<JournalRecord> told;
    while (!journal.tell(place, ~0ull, 1, told)) {
    }
  }
  RequestName name;
  name.form.assign(reinterpret_cast<const char*>(data), size);
  (void)read_forms({std::make_shared<const RequestName>(std::move(name))}, 4096);
  return 0;
}
