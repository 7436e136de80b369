// SPDX-License-Identifier: Apache-2.0
// Reads records (shim/guard/text/record.h) into the model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/launcher/findings/fields.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// A doubt about a tree, whoever has lost them.
inline constexpr const char* kRecordsLost = "some records were not received or not written";

class Records {
 public:
  Records() = default;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  /// Called with each record, the process that wrote it, and its call.
  using Take = std::function<void(std::string_view record, const WriterFields& writer,
                                  const CallFields& call)>;
  /// The process that sent a record, with its ids in the launcher's PID namespace, and what the
  /// launcher knows of the call.
  struct Sender {
    uint32_t pid;
    uint32_t ppid;
    uint64_t since;                      ///< clock ticks since boot; unique together with `pid`
    std::array<uint64_t, 4> image = {};  ///< execve changes it; last 0: unknown
    NativeStack native = {};
    std::string started_by = {};  ///< as in CallSite, but of any program
  };
  /// Adds one line, which may have any content. A record with the event "native" has the native
  /// stack of the call in the next record. If a killed writer left a piece of a record, the
  /// next record follows in the same line. Lines without a record are counted. The ids of `sender`,
  /// which may be null, replace those in the record. Returns true if the last record is a CUDA
  /// attempt.
  bool add(std::string_view line, const Take& take = {}, const Sender* sender = nullptr);
  /// Leaves out, and counts, what is from before this time.
  void leave_out_before(double since) { findings_.since = since; }
  void name_users(std::map<uint32_t, std::string> users) { findings_.users = std::move(users); }
  /// Everything that was added so far.
  const Findings& findings();

 private:
  enum class Kind { kRecord, kOld, kTorn, kForeign };
  /// The part of a record after the facts about the process. Most records share a few of these byte
  /// by byte, so each is parsed once.
  struct Rest {
    CallFields call;
    bool known = false;          ///< the next two members are set
    SharedText text;             ///< the text about a call that was refused or failed
    SharedText rule;             ///< that decided; null: none
    std::optional<size_t> site;  ///< of an attempt without a native stack
  };
  struct HashOfBytes : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct SameCallSite {
    const std::vector<CallSite>& sites;
    bool operator()(size_t a, size_t b) const;
  };

  void note_sick(const WriterFields& writer, const CallFields& call);
  void note(const CallFields& call, const SharedText& text, ObservedProcess& process);
  Kind add_one(std::string_view text, const Take& take);
  Kind apply(WriterFields& writer, Rest& rest);
  uint64_t since() const { return sender_ == nullptr ? 0 : sender_->since; }
  bool is_image_of(const ObservedProcess& process) const;
  void name_program(WriterFields& writer) const;
  Rest* rest_of(std::string_view bytes);
  using Index = std::unordered_multimap<size_t, uint32_t>;
  static size_t key_of(const WriterFields& writer, const std::string& host, const std::string& job);
  Index::iterator entry_of(const WriterFields& writer, const std::string& host,
                           const std::string& job);
  bool adopt(const WriterFields& writer, const std::string& job, size_t& number);
  size_t process_of(const WriterFields& writer, bool starts);
  void understand(Rest& rest);
  size_t site_of(const CallFields& call, const NativeStack& native, const std::string& started_by);
  void leave_out_tables();

  Findings findings_;
  /// By a hash of host, pid, program and job. One process may run several programs in turn, and
  /// processes of different PID namespaces may have the same id.
  Index index_;
  bool starts_without_host_ = false;  ///< some start record has no host
  std::unordered_map<std::string, Rest, HashOfBytes, std::equal_to<>> rests_;
  size_t rests_size_ = 0;
  std::set<size_t, SameCallSite> sites_{SameCallSite{findings_.sites}};
  std::unordered_map<std::string, size_t> sick_hosts_;  ///< places in findings_.sick_drivers
  std::string scratch_;
  const Sender* sender_ = nullptr;  ///< the sender of the current line
  NativeStack native_;              ///< of the call in the next record
  double native_ts_ = 0;            ///< the time of that record
  bool is_attempt_ = false;         ///< the last record is a CUDA attempt
};

/// Cuts a stream into lines no longer than a record may be. A line within one part may be longer.
class Lines {
 public:
  /// Calls `take` with each line, without its newline. A too long line without a record is empty.
  explicit Lines(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  void feed(std::string_view part);
  /// Also takes a last line without a newline.
  void finish();

 private:
  /// Ends the part of a line that is too long.
  void leave_out();

  std::function<void(std::string_view)> take_;
  std::string rest_;       ///< the beginning of a line
  bool skipping_ = false;  ///< inside a line that is too long
};

}  // namespace cudaguard::launcher
