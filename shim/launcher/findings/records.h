// SPDX-License-Identifier: Apache-2.0
// What the records (policy/message.h, write_record) say of each process, and of who asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/launcher/findings/fields.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// Every record begins so, and has it nowhere else: in a text the quotes would be escaped.
inline constexpr std::string_view kRecordMark = R"({"v":1,)";

/// "/home/u/ppo.py:159"
std::string place_of(const PythonFrame& frame);
/// The innermost frame of the line that the guard's message names; null: there is none, or the line
/// is a notebook's.
const PythonFrame* own_frame(const CallSite& toucher);

class Records {
 public:
  Records() = default;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  /// Is told of each record, and of who wrote it.
  using Take = std::function<void(std::string_view record, uint32_t pid)>;
  /// The process that sent a record, with its ids in the launcher's PID namespace.
  struct Sender {
    uint32_t pid;
    uint32_t ppid;
    uint64_t since;  ///< clock ticks since boot; unique together with `pid`
  };
  /// One line, without its end: any content is possible. Behind the piece of a record whose writer
  /// was killed stands the next one, in the same line. What is no record is counted. The ids
  /// of `sender`, which may be null, replace those in the record. Returns true if the (last) record
  /// is a CUDA attempt.
  bool add(std::string_view line, const Take& take = {}, const Sender* sender = nullptr);
  /// All of it so far.
  const Findings& findings();

 private:
  enum class Kind { kRecord, kTorn, kForeign };
  /// What follows the process's own facts. Most records of many processes have one of a few of
  /// these, byte by byte: each is understood once.
  struct Rest {
    CallFields call;
    bool known = false;  ///< the next two are
    std::string text;    ///< what was refused or failed
    size_t toucher = 0;
  };
  struct HashOfBytes : std::hash<std::string_view> {
    using is_transparent = void;
  };
  /// Lists with one text more, by the list and the text.
  using Longer = std::map<std::pair<const Texts::List*, std::string>, Texts>;
  struct SameCallSite {
    const std::vector<CallSite>& touchers;
    bool operator()(size_t a, size_t b) const;
  };

  void add_once(Texts& list, const std::string& text);
  void note(const CallFields& call, const std::string& text, ObservedProcess& process);
  Kind add_one(std::string_view text, const Take& take);
  Kind apply(WriterFields& writer, Rest& rest);
  uint64_t since() const { return sender_ == nullptr ? 0 : sender_->since; }
  Rest* rest_of(std::string_view bytes);
  using Places = std::unordered_multimap<size_t, uint32_t>;
  static size_t key_of(const WriterFields& writer, const std::string& host, const std::string& job);
  Places::iterator place_of(const WriterFields& writer, const std::string& host,
                            const std::string& job);
  bool adopt(const WriterFields& writer, const std::string& job, size_t& number);
  size_t process_of(const WriterFields& writer, bool starts);
  void understand(Rest& rest);
  size_t toucher_of(const CallFields& call);

  Findings findings_;
  bool sorted_ = true;  ///< Toucher::processes
  /// By a hash of host, pid, program and job. One process may be several programs, one after
  /// another, and processes of several pid namespaces may have the same number.
  Places places_;
  bool bare_starts_ = false;  ///< some start record says no host
  std::unordered_map<std::string, Rest, HashOfBytes, std::equal_to<>> rests_;
  size_t rests_size_ = 0;
  std::set<size_t, SameCallSite> touchers_{SameCallSite{findings_.touchers}};
  Longer longer_;
  std::string scratch_;
  const Sender* sender_ = nullptr;  ///< of the current line
  bool touched_ = false;            ///< by the last record
};

}  // namespace cudaguard::launcher
