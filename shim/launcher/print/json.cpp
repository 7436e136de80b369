// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/json.h"

#include <rapidjson/prettywriter.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

struct Json::Writer {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer, rapidjson::UTF8<>, rapidjson::ASCII<>> writer{text};
};

static std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    valid += length == 0 ? "\ufffd" : head(text, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

Json::Json(unsigned indent) : indent_(indent), out_(std::make_unique<Writer>()) {}
Json::~Json() = default;

Json& Json::begin_object() { return after(out_->writer.StartObject()); }
Json& Json::end_object() { return after(out_->writer.EndObject()); }
Json& Json::begin_array() { return after(out_->writer.StartArray()); }
Json& Json::end_array() { return after(out_->writer.EndArray()); }
Json& Json::key(const char* name) { return after(out_->writer.Key(name)); }
Json& Json::value(bool flag) { return after(out_->writer.Bool(flag)); }
Json& Json::null() { return after(out_->writer.Null()); }
Json& Json::put_unsigned(uint64_t number) { return after(out_->writer.Uint64(number)); }
Json& Json::put_signed(int64_t number) { return after(out_->writer.Int64(number)); }

Json& Json::value(std::string_view text) {
  const std::string valid = valid_utf8(text);
  return after(out_->writer.String(valid.data(), static_cast<rapidjson::SizeType>(valid.size())));
}

Json& Json::value(double number) {
  return std::isfinite(number) ? after(out_->writer.Double(number)) : null();
}

std::string Json::text() const {
  const rapidjson::StringBuffer* text = &out_->text;
  rapidjson::StringBuffer indented;
  if (indent_ != 0) {
    rapidjson::PrettyWriter<rapidjson::StringBuffer, rapidjson::UTF8<>, rapidjson::ASCII<>> writer(
        indented);
    writer.SetIndent(' ', indent_);
    rapidjson::StringStream stream(text->GetString());
    rapidjson::Reader().Parse<rapidjson::kParseFullPrecisionFlag>(stream, writer);
    text = &indented;
  }
  // DEL is ASCII, but a terminal cannot show it.
  return escaped({text->GetString(), text->GetSize()}, '\x7f');
}

std::string escaped(std::string_view json, char character) {
  std::array<char, 8> code = {};
  snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(character));
  std::string result;
  for (size_t at = json.find(character); at != json.npos; at = json.find(character)) {
    result.append(head(json, at)).append(code.data());
    json.remove_prefix(at + 1);
  }
  return result.append(json);
}

void put_asked(Json& json, const char* name, const std::set<DriverApi>& asked) {
  json.key(name).begin_array();
  for (const DriverApi one : asked) json.value(word_of(one));
  json.end_array();
}

void put(Json& json, const CallSite& site, bool with_names) {
  const std::vector<PythonFrame>& python = site.stack.python;
  const std::vector<NativeFrame>& native = site.stack.native;
  const PythonFrame* named = own_frame(site.stack);
  std::vector<size_t> own_python;
  std::vector<size_t> own_native;
  for (size_t i = 0; i < python.size(); ++i) {
    const Whose whose = whose_code(python[i].file, python[i].function, true);
    if (whose == Whose::kUsers || &python[i] == named) own_python.push_back(i);
  }
  for (size_t i = 0; i < native.size(); ++i) {
    if (!passes_calls_on(native[i].module)) own_native.push_back(i);
  }
  const auto line_frame = named == nullptr ? 0 : named - python.data();
  json.field("asked", word_of(site.asked))
      .field("denied", site.denied)
      .field("api", site.api)
      .field_or_null("object", site.object)
      .field("library", site.library)
      .field_or_null("line", site.line)
      .objects("python", python,
               [&](const PythonFrame& frame) {
                 json.field("file", frame.file).field("line", frame.line);
                 json.field("function", frame.function);
                 if (with_names) json.field_or_null("source", frame.source);
               })
      .field_or_null("python_missing", site.stack.python_missing)
      .objects("native", native,
               [&](const NativeFrame& frame) {
                 json.field("module", frame.module).field("offset", frame.offset);
                 if (with_names) json.field_or_null("symbol", frame.symbol);
               })
      .field_or_null("native_missing", site.stack.native_missing)
      .field_or_null("first", site.first)
      .field_or_null("last", site.last)
      .list("processes", site.processes)
      .list("at", site.at)
      .field_if(named != nullptr, "line_frame", line_frame)
      .list("own_python", own_python)
      .list("own_native", own_native);
}

void put(Json& json, const Place& place) {
  json.field("name", place.name).field_or_null("line", place.line);
  put_asked(json, "asked", place.asked);
  json.field_or_null("first", place.first)
      .field_or_null("last", place.last)
      .list("calls", place.sites)
      .list("processes", place.processes)
      .list("at", place.at);
}

void put(Json& json, const ObservedProcess& process) {
  json.field_or_null("host", process.host)
      .field("pid", process.pid)
      .field("ppid", process.ppid)
      .field_if(process.uid != kNoUid, "uid", process.uid)
      .field_or_null("exe", process.exe)
      .field("command", process.command.shown())
      .field_or_null("job", process.job)
      .field_or_null("policy", process.policy)
      .field_or_null("started", process.started)
      .field_or_null("first", process.first)
      .field_or_null("last", process.last)
      .field("asked", process.asked())
      .field_if(process.initialised, "initialised_by", process.by)
      .field_or_null("visible_devices", process.visible_devices)
      .list("contexts", process.contexts)
      .field("memory", process.memory)
      .field("worked", process.worked)
      .field("nvml", process.nvml)
      .list("tried", process.tried)
      .list("refused", process.refused)
      .field("found_none", process.found_none)
      .field("failed", process.failed);
  if (process.rule != nullptr) json.field("rule", *process.rule);
}

void put(Json& json, const Group& group) {
  json.field_or_null("name", group.name);
  if (group.second) json.field_or_null("second", *group.second);
  json.field("processes", group.processes).field("asking", group.asking);
  put_asked(json, "asked", group.asked);
  json.field_or_null("first", group.first).field_or_null("last", group.last);
}

void put(Json& json, const SickDriver& one) {
  json.field("host", one.host)
      .field("reason", one.reason)
      .field("programs", one.programs)
      .field_or_null("first", one.first)
      .field_or_null("last", one.last);
}

namespace {

/// The sites that keep their stacks if not all can: at most `most`. Those of failing places come
/// first, then those of the most processes.
std::set<size_t> sites_with_stacks(const Findings& findings, size_t most) {
  std::vector<const Place*> order;
  for (const Place& place : findings.places) order.push_back(&place);
  std::stable_sort(order.begin(), order.end(), [](const Place* a, const Place* b) {
    if (a->forbidden.empty() != b->forbidden.empty()) return b->forbidden.empty();
    return a->processes.size() > b->processes.size();
  });
  std::set<size_t> result;
  for (const Place* place : order) {
    for (const size_t site : place->sites) {
      if (result.size() == most) return result;
      result.insert(site);
    }
  }
  return result;
}

}  // namespace

void put_findings(Json& json, const Findings& findings, size_t most_stacks, size_t most_processes,
                  bool decided) {
  // `one` is a site or a place.
  const auto put_forbidden = [&](const auto& one) {
    if (decided) json.field("fails", !one.forbidden.empty()).list("forbidden", one.forbidden);
  };
  json.objects("places", findings.places, [&](const Place& place) {
    put(json, place);
    put_forbidden(place);
  });
  const std::set<size_t> with_stacks = sites_with_stacks(findings, most_stacks);
  size_t number = 0;
  json.objects("calls", findings.sites, [&](CallSite site) {
    if (!with_stacks.contains(number++)) site.stack = {};
    put(json, site, decided);
    put_forbidden(site);
  });
  json.objects(
      "processes", findings.processes, [&](const ObservedProcess& process) { put(json, process); },
      most_processes);
}

void put_records(Json& json, const Findings& findings) {
  json.key("records")
      .begin_object()
      .field("read", findings.records)
      .field("torn", findings.torn)
      .field("not_understood", findings.not_understood)
      .end_object();
}

}  // namespace cudaguard::launcher
