#include "actors/control/certificate_keeper.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "actors/control/certificate_life.h"
#include "tests/actors/control/support.h"

using namespace troupe;

namespace {

constexpr std::int64_t kDay = 24 * 3600;
constexpr std::int64_t kYear = 365 * kDay;
const TimePoint kStart{};

TimePoint at(std::int64_t s) { return kStart + std::chrono::seconds(s); }

/// A file and a head, as a test wants them.
struct FakeCertificate final : HeldCertificate {
  std::string file = "first", used = "first";  // what follows a '#' is a remark
  CertificateLife life{0, 3 * kYear}, next{kYear, 2 * kYear};
  bool can_renew = true, head_is_there = true, readable = true, writable = true;
  int renewals = 0;

  std::string in_use() const override { return used; }
  Result<std::string> read() override {
    return readable ? Result<std::string>(file) : unavailable("It cannot be read.");
  }
  Result<CertificateLife> adopt(const std::string& text) override {
    if (text.starts_with("bad")) return corrupt("it is bad.");
    used = text.substr(0, text.find('#'));
    return life;
  }
  bool renewable() const override { return can_renew; }
  Result<CertificateLife> renew() override {
    ++renewals;
    if (!head_is_there) return unavailable("Nobody answers.");
    used = "renewed";
    return next;
  }
  Result<std::string> store(const std::string& expected) override {
    if (!writable) return unavailable("No space left on device.");
    if (file != expected) return unavailable("It has just been changed.");
    return file = used;
  }
};

/// A keeper whose clocks a test turns: the wall's is `skew_s` off.
struct KeptFile {
  FakeCertificate held;
  std::vector<std::string> said, trouble;
  std::int64_t s = 0, skew_s = 0;
  CertificateKeeper keeper;

  explicit KeptFile(std::int64_t skew = 0, std::string seen = "first")
      : skew_s(skew),
        keeper({.name = "It",
                .file = "FILE",
                .life = {0, kYear},
                .text = std::move(seen),
                .spread = 0,
                .say = [this](bool bad,
                              const std::string& text) { (bad ? trouble : said).push_back(text); }},
               held, kStart) {}
  void go(std::int64_t to_s) {
    s = to_s;
    (void)keeper.step(s + skew_s, at(s));
  }
};

}  // namespace

TEST_CASE("when certificates are due, end, and are asked for again") {
  const CertificateLife year{0, kYear}, short_one{100, 110};
  struct Row {
    CertificateLife life;
    double spread;
    std::int64_t due_s, warned_s, last_good_s;
  };
  for (const Row& row : {Row{year, 0, kYear * 2 / 3, kYear - 30 * kDay, kYear + kDay},
                         Row{year, 1, kYear * 5 / 6, kYear - 30 * kDay, kYear + kDay},
                         Row{year, 7, kYear * 5 / 6, kYear - 30 * kDay, kYear + kDay},
                         Row{short_one, 0, 107, 107, 111}, Row{short_one, 1, 108, 107, 111}}) {
    CHECK(std::abs(renewal_due_s(row.life, row.spread) - row.due_s) <= 1);
    CHECK(warning_due_s(row.life) == row.warned_s);
    CHECK_FALSE(has_ended(row.life, row.last_good_s));
    CHECK(has_ended(row.life, row.last_good_s + 1));
    CHECK_FALSE(has_ended(row.life, -40 * kYear));  // whoever's clock that is
  }
  CHECK(retry_pause(1, kYear, 0) == 1s);
  CHECK(retry_pause(4, kYear, 0) == 8s);
  CHECK(retry_pause(4, kYear, 1) == 4s);
  CHECK(retry_pause(1000, kYear, 0) == 1h);
  CHECK(retry_pause(1000, 80, 0) == 10s);
  CHECK(retry_pause(3, 0, 0) == 200ms);
  CHECK(retry_pause(0, -5, 2) == 200ms);
}

TEST_CASE("a thousand that were made at once are spread over a sixth of their life") {
  std::vector<int> days(366);
  for (int i = 0; i < 1000; ++i)
    ++days[static_cast<std::size_t>(renewal_due_s({0, kYear}, drawn_spread()) / kDay)];
  CHECK(*std::ranges::max_element(days) < 60);
}

TEST_CASE("a certificate is renewed after two thirds of its life, once, and stored") {
  KeptFile office;
  office.go(kYear * 2 / 3 - 10);
  CHECK(office.held.renewals == 0);
  office.go(kYear * 2 / 3 + 1);
  CHECK(office.held.file == "renewed");
  office.go(kYear + 5 * kDay);
  CHECK(office.held.renewals == 1);
  CHECK(office.said.size() == 1);
  CHECK(office.trouble.empty());
}

TEST_CASE("one that lasts until the year 9999 is not due, and is renewed and looked at as any") {
  constexpr std::int64_t kYear9999 = 253402300799;
  KeptFile office(0, "none");
  office.go(0), office.go(2);  // takes what is there
  office.held.next = {0, kYear9999};
  office.go(2 * kYear + kDay);
  REQUIRE(office.held.renewals == 1);
  CHECK(office.keeper.step(2 * kYear + 2 * kDay, at(2 * kYear + 2 * kDay)) == 2s);
  CHECK(office.held.renewals == 1);
  office.go(90 * kYear);
  CHECK(office.held.renewals == 1);
  office.held.head_is_there = false;
  office.skew_s = kYear9999;  // a wall that is due
  for (std::int64_t s = 0; s < 100; ++s) office.go(90 * kYear + s);
  CHECK(office.held.renewals <= 9);
  CHECK(office.trouble.size() == 1);
}

TEST_CASE("while the head is away it asks ever more seldom, and says so once a day") {
  KeptFile office;
  office.held.head_is_there = false;
  const std::int64_t due = kYear * 2 / 3 + 1;
  for (std::int64_t s = 0; s < 600; ++s) office.go(due + s);
  CHECK(office.held.renewals <= 11);
  CHECK(office.trouble.size() == 1);
  for (std::int64_t s = 600; s < 3 * kDay; s += 2) office.go(due + s);
  CHECK(office.held.renewals < 11 + 3 * 24 + 3);
  CHECK(office.trouble.size() <= 4);
  office.held.head_is_there = true;
  office.go(due + 3 * kDay + 3601);
  CHECK(office.held.file == "renewed");
}

TEST_CASE("what cannot be stored is used, and stored when there is room") {
  KeptFile office;
  office.held.writable = false;
  const std::int64_t due = kYear * 2 / 3 + 1;
  office.go(due);
  CHECK(office.held.used == "renewed");
  CHECK(office.held.file == "first");
  CHECK(office.trouble.size() == 1);
  for (std::int64_t s = 1; s < 100; ++s) office.go(due + s);
  CHECK(office.held.renewals == 1);  // the new one is good: the head is left alone
  CHECK(office.trouble.size() == 1);
  office.held.writable = true;
  office.go(due + 4000);
  CHECK(office.held.file == "renewed");
}

TEST_CASE("a file that was changed is judged when it stays as it is") {
  KeptFile office;
  office.held.file = "sec";
  office.go(1);
  CHECK(office.held.used == "first");
  office.held.file = "second";  // its writer goes on
  office.go(2);
  CHECK(office.held.used == "first");
  office.go(3);
  CHECK(office.held.used == "second");
  CHECK(office.keeper.life() == CertificateLife{0, 3 * kYear});
  office.held.file = "bad";
  for (int i = 4; i < 10; ++i) office.go(i);
  CHECK(office.held.used == "second");
  REQUIRE(office.trouble.size() == 1);
  CHECK(office.trouble[0].starts_with("What is in FILE now is not used: it is bad. It stays"));
  office.held.readable = false;
  for (int i = 10; i < 20; ++i) office.go(i);
  CHECK(office.trouble.size() == 2);
  CHECK(office.held.used == "second");
}

TEST_CASE("another certificate is told from the same one with a remark, not by its times") {
  KeptFile office;
  office.held.life = {0, kYear};  // as that of the first
  office.held.file = "first# a remark";
  for (int i = 1; i < 4; ++i) office.go(i);
  CHECK(office.said.empty());
  office.held.file = "second";
  for (int i = 4; i < 8; ++i) office.go(i);
  REQUIRE(office.said.size() == 1);
  CHECK(office.said[0].starts_with("It is the new one of FILE"));
}

TEST_CASE("an operator's file is not written over") {
  KeptFile office;
  office.held.file = "second";
  office.go(kYear * 2 / 3 + 1);  // due, and a file that was not yet judged
  CHECK(office.held.renewals == 0);
  office.go(kYear * 2 / 3 + 2);
  CHECK(office.held.used == "second");
  CHECK(office.held.file == "second");
}

TEST_CASE("a file that was refused is left: it may be what the next start is to have") {
  KeptFile office;
  office.held.file = "bad: of another cluster";
  office.go(1);
  office.go(2);
  office.go(kYear * 2 / 3 + 1);
  CHECK(office.held.renewals == 1);
  CHECK(office.held.used == "renewed");
  for (int i = 2; i < 9; ++i) office.go(kYear * 2 / 3 + i * 3600);
  CHECK(office.held.file == "bad: of another cluster");
  CHECK(office.trouble.size() == 2);  // that it is not used, and that it is not written over
  office.held.file = "second";
  office.go(kYear * 2 / 3 + kDay);
  office.go(kYear * 2 / 3 + kDay + 1);
  CHECK(office.held.used == "second");
  CHECK(office.held.file == "second");
}

TEST_CASE("a clock that is wrong makes no storm and misses no renewal") {
  // 40 years ahead: it looks ended, is renewed, and the new one looks ended as well.
  KeptFile ahead(40 * kYear);
  for (std::int64_t s = 0; s < kDay; s += 60) ahead.go(s);
  CHECK(ahead.held.renewals == 1);
  REQUIRE(ahead.said.size() == 1);
  CHECK(ahead.said[0].find("clock is wrong") != std::string::npos);
  // 40 years behind: the time that it ran counts.
  KeptFile behind(-40 * kYear);
  behind.go(kYear * 2 / 3 - 10);
  CHECK(behind.held.renewals == 0);
  behind.go(kYear * 2 / 3 + 1);
  CHECK(behind.held.renewals == 1);
}

TEST_CASE("one that cannot be renewed here is warned of once a day") {
  KeptFile office;
  office.held.can_renew = false;
  office.go(kYear - 31 * kDay);
  CHECK(office.trouble.empty());
  for (std::int64_t s = kYear - 29 * kDay; s < kYear - 27 * kDay; s += 60) office.go(s);
  CHECK(office.trouble.size() == 2);
  CHECK(office.trouble[0].find("put another one into FILE") != std::string::npos);
  CHECK(office.held.renewals == 0);
}
