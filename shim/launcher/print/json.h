// SPDX-License-Identifier: Apache-2.0
// JSON, and the findings in it, in the same form in each document (report.schema.json).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "policy/library.h"

namespace cudaguard::launcher {

struct CallSite;
struct Findings;
struct Group;
struct ObservedProcess;
struct Place;
struct SickDriver;

/// Writes one JSON document in ASCII, so that a terminal can show it.
class Json {
 public:
  /// `indent` is the number of blanks per level; 0 puts everything on one line.
  explicit Json(unsigned indent = 0);
  ~Json();

  Json& begin_object();
  Json& end_object();
  Json& begin_array();
  Json& end_array();
  Json& key(const char* name);

  /// Each byte of the text that is not UTF-8 becomes U+FFFD.
  Json& value(std::string_view text);
  Json& value(const char* text) { return value(std::string_view(text)); }
  Json& value(const std::shared_ptr<const std::string>& text) { return value(*text); }
  Json& value(bool flag);
  /// Writes null if the number is infinite or NaN.
  Json& value(double number);
  Json& value(std::unsigned_integral auto number) { return put_unsigned(number); }
  Json& value(std::signed_integral auto number) { return put_signed(number); }
  Json& null();

  template <typename Value>
  Json& field(const char* name, const Value& what) {
    return key(name).value(what);
  }
  Json& field_or_null(const char* name, const std::string& text) {
    return field_if(!text.empty(), name, text);
  }
  Json& field_or_null(const char* name, double time) { return field_if(time != 0, name, time); }
  template <typename List>
  Json& list(const char* name, const List& values) {
    key(name).begin_array();
    for (const auto& one : values) value(one);
    return end_array();
  }

  /// Writes null unless `known`.
  template <typename Value>
  Json& field_if(bool known, const char* name, const Value& what) {
    return known ? field(name, what) : key(name).null();
  }
  /// `put` writes the members of each object. The array has at most `most` of them.
  template <typename List, typename Put>
  Json& objects(const char* name, const List& list, Put put, size_t most = SIZE_MAX) {
    key(name).begin_array();
    for (const auto& one : list) {
      if (most-- == 0) break;
      begin_object();
      put(one);
      end_object();
    }
    return end_array();
  }

  /// Everything that was written so far; with an indent, this must be a whole document.
  std::string text() const;

 private:
  Json& put_unsigned(uint64_t number);
  Json& put_signed(int64_t number);
  /// A writer reports only that there is no memory, and then it has thrown.
  Json& after(bool /*written*/) { return *this; }

  unsigned indent_;
  struct Writer;  ///< RapidJSON's, which is slow to compile
  std::unique_ptr<Writer> out_;
};

/// Replaces `character`, which may occur only in strings of `json`, by an escape: "\u003c".
std::string escaped(std::string_view json, char character);

void put_asked(Json& json, const char* name, const std::set<DriverApi>& asked);
// These write the members of an object that the caller begins and ends.
/// `with_names`: name_frames() has named the frames.
void put(Json& json, const CallSite& site, bool with_names = false);
void put(Json& json, const Place& place);
void put(Json& json, const ObservedProcess& process);
void put(Json& json, const Group& group);
void put(Json& json, const SickDriver& one);
/// Writes "places", "calls" and "processes". Only `most_stacks` sites keep their stacks,
/// failing ones first. `decided`: decide() and name_frames() have filled in the model.
void put_findings(Json& json, const Findings& findings, size_t most_stacks, size_t most_processes,
                  bool decided);
/// Writes "records": the numbers of lines that were read, cut short and left out.
void put_records(Json& json, const Findings& findings);

}  // namespace cudaguard::launcher
