#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/control/certificate_life.h"
#include "runtime/clock.h"
#include "runtime/result.h"

namespace troupe {

/// A certificate that a running process uses, and the file that it comes from.
class HeldCertificate {
 public:
  virtual ~HeldCertificate() = default;
  /// The one in use, as text, without what else is in the file.
  virtual std::string in_use() const = 0;
  /// The file's text.
  virtual Result<std::string> read() = 0;
  /// Uses what an operator has put there, for connections that begin from now on. An error changes
  /// nothing; it is the end of a sentence about the file.
  virtual Result<CertificateLife> adopt(const std::string& text) = 0;
  virtual bool renewable() const = 0;
  /// Gets a new one, and uses it for connections that begin from now on. May block for seconds.
  virtual Result<CertificateLife> renew() = 0;
  /// Writes the one in use, in one piece, unless the file's text is no more `expected`; returns
  /// what it is now.
  virtual Result<std::string> store(const std::string& expected) = 0;
};

/// Renews a certificate in time, and takes what is put in its place; no connection that is up
/// notices. The clock on the wall may be wrong: one that was got in this life is renewed after two
/// thirds of its life by either clock, and a wall that calls a new one old is not asked again.
///
///     look at the file ── changed, and the same at the next look ──► adopt, or one sentence
///          │ as before
///     due? ──► renew ──► store ── full, read-only ──► it is used; store again later
///                └─ failed ──► again after retry_pause()
///
/// Not thread-safe.
class CertificateKeeper {
 public:
  struct Options {
    std::string name;  ///< how sentences call it, such as "The head's certificate"
    std::string file;
    CertificateLife life;
    std::string text;   ///< of the file that it was read from
    double spread = 0;  ///< 0 to 1, another in each process: see renewal_due_s
    std::function<void(bool trouble, const std::string& sentence)> say = log;
  };
  /// Trouble is a warning.
  static void log(bool trouble, const std::string& sentence);
  CertificateKeeper(Options options, HeldCertificate& held, TimePoint now);

  /// Does what is to be done now; returns after what time to call it again.
  Duration step(std::int64_t wall_s, TimePoint now);

  const CertificateLife& life() const { return life_; }

 private:
  /// Whether the file is as it was seen last.
  bool look(TimePoint now);
  bool due(std::int64_t wall_s, TimePoint now) const;
  void renew(std::int64_t wall_s, TimePoint now);
  void store(TimePoint now);
  void warn_of_end(std::int64_t wall_s, TimePoint now);
  void begin(const CertificateLife& life, TimePoint now);

  const Options options_;
  HeldCertificate& held_;
  CertificateLife life_;
  TimePoint since_;  ///< this process has it
  bool wall_counts_ = true;
  std::string seen_;         ///< text of the file that was judged
  std::string used_;         ///< the newest that was found good, or written by this
  std::string changed_to_;   ///< another text, seen once
  bool unreadable_ = false;  ///< and it was said
  bool unstored_ = false;
  int failures_ = 0;
  TimePoint retry_at_{};
  TimePoint warn_at_{};
};

/// A keeper on a thread of its own, until it is destroyed; that may take as long as one renewal.
class CertificateWatch {
 public:
  /// kUnavailable: no thread is to be had.
  static Result<std::unique_ptr<CertificateWatch>> start(CertificateKeeper::Options options,
                                                         HeldCertificate& held);
  ~CertificateWatch();
  CertificateWatch(const CertificateWatch&) = delete;

 private:
  CertificateWatch(CertificateKeeper::Options options, HeldCertificate& held);
  void run();

  CertificateKeeper keeper_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

/// 0 to 1, drawn.
double drawn_spread();

}  // namespace troupe
