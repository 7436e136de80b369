// SPDX-License-Identifier: Apache-2.0
// An attempt is announced before anything marks it as known, and signals are blocked from before
// the announcement until the record is sent. A handler that jumps out of cuInit can therefore lose
// nothing, and a second thread that finds the mark knows that the launcher has heard of the
// attempt.
#include "shim/guard/record/output.h"

#include "policy/decision.h"
#include "policy/driver_api.h"
#include "policy/nvidia_requests.h"
#include "policy/standard_error.h"
#include "shim/guard/elf/own_files.h"
#include "shim/guard/elf/own_maps.h"
#include "shim/guard/record/append_report.h"
#include "shim/guard/record/beacon.h"
#include "shim/guard/record/call_site.h"
#include "shim/guard/record/facts.h"
#include "shim/guard/stack/hash.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

namespace {

constexpr int kStderr = 2;

struct Scratch {
  char path[4352];
  ProgramRoom program;
  FactsRoom facts;
  ReportRoom report;
  char line[kMaxLine];
};

using ScratchPages = sys::Mapped<Scratch>;

// The same as glibc's <sys/sysmacros.h>, whose functions become calls if the compiler saves space.
constexpr unsigned major_of(uint64_t device) {
  return static_cast<unsigned>((device >> 8 & 0xfff) | (device >> 32 & ~0xfffU));
}
constexpr unsigned minor_of(uint64_t device) {
  return static_cast<unsigned>((device & 0xff) | (device >> 12 & ~0xffU));
}

Descriptor describe(int fd) {
  Descriptor result;
  struct stat status = {};
  if (sys::fstat(fd, &status) != 0) return result;
  result.device = status.st_dev;
  result.inode = status.st_ino;
  const int access = sys::fcntl(fd, F_GETFL);
  result.readable = access >= 0 && (access & O_ACCMODE) != O_WRONLY;
  result.writable = access >= 0 && (access & O_ACCMODE) != O_RDONLY;
  result.close_on_exec = (sys::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
  using Kind = Descriptor::Kind;
  result.kind = Kind::kOther;
  if (S_ISREG(status.st_mode)) result.kind = Kind::kRegular;
  if (S_ISFIFO(status.st_mode)) result.kind = Kind::kPipe;
  if (S_ISSOCK(status.st_mode)) result.kind = Kind::kSocket;
  if (S_ISCHR(status.st_mode)) {
    // Linux devices.txt: 1:3 null; 4 and 5 consoles and ttys; 136-143 pts; 188, 204, 229 serial,
    // hvc.
    const unsigned family = major_of(status.st_rdev);
    const bool terminal = family == 4 || family == 5 || (family >= 136 && family <= 143) ||
                          family == 188 || family == 204 || family == 229;
    if (terminal || (family == 1 && minor_of(status.st_rdev) == 3)) {
      result.kind = Kind::kTerminalOrNull;
    }
  }
  return result;
}

/// Writes to a pipe or terminal through an open file description of our own. With O_NONBLOCK the
/// program does not wait for a reader that sleeps. With O_RDWR we are a reader, too, so the program
/// does not die of SIGPIPE when the other reader has gone away. Loading a library needs the same
/// system calls, so a seccomp filter allows them. Returns false if there is no /proc or no free
/// descriptor, or if the pipe is another user's.
bool write_by_own_descriptor(std::string_view line) {
  const sys::File own("/proc/self/fd/2", O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (own.ok()) sys::write(own.fd(), line.data(), line.size());
  return own.ok();
}

/// Writes nothing if descriptor 2 is not ours to use. What is no terminal gets UTF-8 whatever the
/// locale is, because a log is read elsewhere.
void write_to_stderr(Text& text) {
  const Descriptor err = describe(kStderr);
  if (!may_write_line(describe(0), describe(1), err)) return;
  if (err.kind == Descriptor::Kind::kTerminalOrNull &&
      !shows_utf8(inherited.start.charset, nullptr, nullptr))
    text.make_ascii();
  const std::string_view line = text.view();
  if (err.kind == Descriptor::Kind::kSocket) {
    sys::send_now(kStderr, line.data(), line.size());
  } else if (err.kind == Descriptor::Kind::kRegular ||
             (!write_by_own_descriptor(line) && sys::takes_now(kStderr))) {
    sys::quiet_write(kStderr, line.data(), line.size());
  }
}

/// A message whose sentence is still to come.
struct Line : Text {
  explicit Line(const ScratchPages& scratch) : Text(scratch->line, sizeof scratch->line) {
    begin_line(*this, sys::getpid());
  }
  void write() { write_to_stderr(put("\n")); }
};

/// Sends the record to the launcher. Returns false if no launcher listens.
bool send_to_launcher(Beacon what, const void* caller, const ScratchPages& scratch, uint32_t pid,
                      const Attempt& attempt) {
  const ProcessFacts facts = gather_facts(scratch->facts, pid, attempt);
  Text record(scratch->report.record, kMaxRecord);
  write_record(record, facts, attempt, kMaxRecord);
  return send_beacon(what, caller, record.view());
}

/// Writes one record to the report. Returns what append_to_report() does.
int send(std::string_view report, const ScratchPages& scratch, uint32_t pid,
         const Attempt& attempt) {
  const ProcessFacts facts = gather_facts(scratch->facts, pid, attempt);
  if (report == "/dev/stderr") {
    // On most systems this path is a link to descriptor 2, which has a rule of its own.
    Text record(scratch->report.record, kMaxLine);
    write_record(record, facts, attempt, kMaxLine);
    write_to_stderr(record);
    return 0;
  }
  return append_to_report(report, facts, attempt, scratch->report);
}

/// True for the first caller with this bit, unless `other` was printed before.
bool print_once(Message bit, Message other = {}) {
  const auto bits = static_cast<uint32_t>(bit);
  const uint32_t before = inherited.record.printed.fetch_or(bits, std::memory_order_relaxed);
  return (before & (bits | static_cast<uint32_t>(other))) == 0;
}

void write_report(Process& process, const ScratchPages& scratch, uint32_t pid,
                  const Attempt& attempt) {
  const int error = send(process.decision.report, scratch, pid, attempt);
  if (error != 0 && process.decision.log != Log::kOff && print_once(Message::kReportFailed)) {
    Line line(scratch);
    const std::string_view path =
        scratch->report.has_file ? scratch->report.path : process.decision.report;
    write_report_failed(line, path, error);
    line.write();
  }
}

void print_complaints(Process& process) {
  const Mistakes& found = process.decision.mistakes;
  const bool bad_list = found.list.why != ListError::Why::kNone;
  const bool bad_rule = found.rule.why != RuleMistake::Why::kNone;
  const bool unused = found.why_unused != nullptr;
  const bool unknown = !found.unknown_name.name.empty();
  if (found.complaint_count == 0 && !bad_list && !bad_rule && !unused && !unknown) return;
  if (process.decision.log == Log::kOff) return;
  if (!print_once(Message::kComplaints)) return;
  const ScratchPages scratch;
  if (!scratch) return;
  if (bad_list) {
    Line line(scratch);
    write_list_error(line, {found.bad_list, found.list});
    line.write();
  }
  if (unused) {
    Line line(scratch);
    write_unused_file(line, {found.unused_file, found.why_unused});
    line.write();
  }
  if (bad_rule) {
    Line line(scratch);
    write_rule_mistake(line, {found.rule_place, found.rule});
    line.write();
  }
  if (unknown) {
    Line line(scratch);
    write_unknown_name(line, found.unknown_name);
    line.write();
  }
  for (size_t i = 0; i < found.complaint_count; ++i) {
    Line line(scratch);
    write_complaint(line, found.complaints[i]);
    line.write();
  }
}

[[gnu::cold, gnu::noinline]] void write_one_line(Process& process, Writer write,
                                                 const void* context) {
  print_complaints(process);
  const ScratchPages scratch;
  if (!scratch) return;
  Line line(scratch);
  write(line, context);
  line.write();
}

/// A start beacon has this in place of a caller.
const void* as_argument(Policy policy) {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(policy) + 1);
}

Beacon beacon_of(EventKind event, DriverApi asked) {
  if (event == EventKind::kContext) return Beacon::kContext;
  if (event == EventKind::kNoContext) return Beacon::kNoContext;
  if (event == EventKind::kRefused) return Beacon::kRefused;
  if (event == EventKind::kExposed) return Beacon::kExposed;
  if (!is_denied(event) && event != EventKind::kInit && event != EventKind::kNvml) {
    return Beacon::kAllowed;
  }
  return asked == DriverApi::kCuda   ? Beacon::kCuda
         : asked == DriverApi::kNvml ? Beacon::kNvml
                                     : Beacon::kOpenCl;
}

/// A process that has got no CUDA. A child that was forked after cuInit says nothing about that.
bool is_in_vain(const Event& event) {
  return event.kind == EventKind::kInit && event.result > 0 && event.result != kNotInitialized;
}

}  // namespace

/// `cudaguard verify` counts the guarded processes by their start beacons or, where no launcher can
/// listen, by the start records in the report. If a record cannot be written, the first CUDA
/// attempt of the process reports that.
void report_start(char** words, char** variables) {
  const Decision decision = read_decision(false);
  inherited.record.listens = announce(Beacon::kStart, as_argument(decision.calls));
  if (decision.report.empty()) return;
  const ScratchPages scratch;
  if (!scratch) return;
  Attempt attempt;
  attempt.event = EventKind::kStart;
  attempt.policy = decision.calls;
  // The kernel puts the arguments one after the other, and the variables after them. If the guard
  // is loaded late, the program may have moved either of them far away.
  const auto size = static_cast<size_t>(variables[0] - words[0]);
  attempt.program = size < sizeof scratch->program.arguments
                        ? std::string_view(words[0], size)
                        : read_all("/proc/self/cmdline", scratch->program.arguments,
                                   sizeof scratch->program.arguments);
  send(decision.report, scratch, sys::getpid(), attempt);
}

uint64_t key_of(Process& process, const Event& event) {
  print_complaints(process);
  // If a filter that the program inherited has refused the start beacon, announce() is still to
  // try.
  const bool is_unheard = event.kind == EventKind::kContext && inherited.start.wants_start;
  if (!wants_events(process) && !is_unheard) return 0;
  // Only the first event of a kind counts: the record shows what a process does, not by which
  // function.
  return Hash()
      .add(static_cast<uint64_t>(event.kind))
      .add(uint64_t{static_cast<uint32_t>(event.device)})
      .add(uint64_t{static_cast<uint32_t>(event.result)})
      .result();
}

void announce(const Event& event, Output& output) {
  Attempt& attempt = output.attempt;
  attempt.api = event.api;
  attempt.event = event.kind;
  attempt.device = event.device;
  if (event.kind == EventKind::kInit || event.kind == EventKind::kNvml ||
      event.kind == EventKind::kContext) {
    attempt.result = event.result;
  }
  if (event.object != nullptr) attempt.object = event.object;
  const bool denied = is_denied(event.kind) || event.kind == EventKind::kRefused;
  if (denied && event.object != nullptr) attempt.api = "dlopen";
  attempt.asked =
      is_context(event.kind) ? DriverApi::kContext : driver_api_of(attempt.api, attempt.object);
  output.beacon = beacon_of(event.kind, attempt.asked);
  output.heard = announce(output.beacon, event.caller);
  if (output.heard) {
    inherited.record.listens.store(true, std::memory_order_relaxed);
  } else if ((denied || is_context(event.kind) || is_in_vain(event)) &&
             (inherited.record.listens.load(std::memory_order_relaxed) ||
              inherited.start.wants_start)) {
    // A filter of the program itself, or of one that started it, refuses getpid, so an NVIDIA ioctl
    // reports the attempt: the launcher receives these ioctls, too, and without the fence this one.
    sys::call(SYS_ioctl, -1, kGuardsRequest, static_cast<long>(output.beacon));
  }
}

void withdraw(const void* caller, const Output& output) {
  if (output.heard) announce(Beacon::kWithdrawn, caller);
}

bool prepare(Process& process, Output& output) {
  print_complaints(process);
  const EventKind event = output.attempt.event;
  const Log log = process.decision.log;
  // These two have messages of their own.
  const bool has_message = event == EventKind::kRefused || event == EventKind::kExposed;
  output.line = log == Log::kAll && !has_message;
  const DriverApi asked = output.attempt.asked;
  if (event == EventKind::kNone) {
    // CUDA, NVML and OpenCL have a message each. A refusal of NVML or OpenCL is no news after one
    // of CUDA.
    const bool first =
        sys::is_glibc() && wants_line(log, true) &&
        (asked == DriverApi::kCuda
             ? print_once(Message::kDenied)
             : print_once(asked == DriverApi::kNvml ? Message::kDeniedNvml : Message::kDeniedOpenCl,
                          Message::kDenied));
    output.line = wants_line(log, first);
  }
  if (event == EventKind::kNoContext) {
    output.line = wants_line(log, wants_line(log, true) && print_once(Message::kNoContext));
  }
  return output.line || output.heard || !process.decision.report.empty();
}

void write_out(Process& process, const void* caller, Output& output) {
  Attempt& attempt = output.attempt;
  const Decision& decision = process.decision;
  const ScratchPages scratch;
  if (!scratch) {
    if (output.heard) send_beacon(output.beacon, caller, {});
    return;
  }
  const uint32_t pid = sys::getpid();
  if (process.policy() == decision.calls) attempt.rule = decision.decided_by;
  if (attempt.caller.module.empty()) {
    attempt.caller = place_of(caller, scratch->path, sizeof scratch->path);
  }
  read_program(scratch->program, attempt);
  if (output.line) {
    Line line(scratch);
    if (is_denied(attempt.event)) {
      const std::string_view because = process.because();
      write_denied(line, {.pid = pid,
                          .because = because,
                          .rule = because == kIsRuled ? decision.rule : std::string_view{},
                          .attempt = attempt,
                          .names_call = decision.log == Log::kAll,
                          .is_child = because == kIsChild || because == kIsQueryChild,
                          .is_parent = because == kIsParent || because == kIsQueryParent,
                          .may_lift = decision.may_lift,
                          .privileged = decision.privileged,
                          .in_run = decision.in_run,
                          .fenced = decision.fenced,
                          .children_by_option = decision.children_by_option,
                          .unhealthy = decision.unhealthy,
                          .first_process = decision.first_process});
    } else {
      write_allowed(line, process.policy(), attempt);
    }
    line.write();
  }
  if (output.heard) send_to_launcher(output.beacon, caller, scratch, pid, attempt);
  if (!decision.report.empty()) write_report(process, scratch, pid, attempt);
}

void print_message(Process& process, Message bit, Writer write, const void* context) {
  if (process.decision.log == Log::kOff || !print_once(bit)) return;
  write_one_line(process, write, context);
}

void print_case(Process& process, uint64_t key, Writer write, const void* context) {
  if (process.decision.log == Log::kOff || !process.record.reported.add(key)) return;
  write_one_line(process, write, context);
}

void record_no_driver(Process& process, const char* api, const void* caller) {
  const ListInVainFacts facts = {process.decision.allow_list.text,
                                 "NVIDIA's driver cannot be loaded", process.decision.allow_list.by,
                                 0, process.decision.allow_list.place};
  if (!facts.list.empty()) {
    print_message(process, Message::kListInVain, write_line_of<write_list_in_vain, ListInVainFacts>,
                  &facts);
  }
  record_event(process, {.api = api, .caller = caller, .result = kNoDevice});
}

void print_no_opencl(Process& process, const void* caller) {
  if (!sys::is_glibc()) return;
  const auto bit = static_cast<uint32_t>(Message::kOpenCl);
  if ((inherited.record.printed.load(std::memory_order_relaxed) & bit) != 0) return;
  const CallSite site(process, caller);
  const GivenList& list = process.decision.allow_list;
  const std::string_view policy = name_of(Policy::kNoContext);
  const NoOpenClFacts facts = {site.attempt(), list.text.empty() ? policy : name_of(list.by)};
  print_message(process, Message::kOpenCl, write_line_of<write_no_opencl, NoOpenClFacts>, &facts);
}

// A musl program cannot load these files although they exist, so nothing is printed.

void print_unusable(Message bit, const char* file, Unusable why) {
  if (!sys::is_glibc()) return;
  const char* instead = bit == Message::kNoNullDriver    ? "CUDA is refused"
                        : bit == Message::kNoDriverProxy ? "FORCE_CPU applies"
                                                         : "NVML is refused";
  const MissingFacts facts = {file, why, instead};
  print_message(process(), bit, write_line_of<write_missing, MissingFacts>, &facts);
}

}  // namespace cudaguard
