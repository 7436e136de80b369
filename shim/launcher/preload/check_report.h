// SPDX-License-Identifier: Apache-2.0
// Checks whether the guard will be able to write its report.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

inline constexpr char kReportOption[] = "--report ";
struct ReportCheck {
  const char* name = "CUDAGUARD_REPORT=";  ///< what named it
  bool strict = false;  ///< refuse a report that this user may not write, or no log that listens
  bool copied = false;  ///< the launcher writes the records, too, which syslog: does not take
};
/// "Is a directory (accepted: ...)". `error` is as for put_report_error(); `copied` as above.
std::string why_no_report(int error, bool copied);
/// Throws Refusal if the report cannot be appended to, or is one of `programs`. If this user may
/// not write it, warns and returns false unless `strict`. If no log listens, throws if `strict`.
/// Writes nothing and makes no file.
bool check_report(std::string_view report, const ReportCheck& check,
                  const std::vector<std::string>& programs);

/// The report of process `pid`, with %p, %u and %h replaced. %u is this user. In a spool directory,
/// it is this user's file of the day.
std::string report_path(std::string_view report, int pid);
/// Opens it, to append to it. Returns a descriptor, or -1 after setting `error` to a value that
/// put_report_error() takes.
int open_report(std::string_view report, int pid, int& error);

}  // namespace cudaguard::launcher
