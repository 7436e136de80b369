// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/program_text.h"

namespace cudaguard::launcher {

namespace {

using Json = nlohmann::ordered_json;

/// What is empty is not known, or not there.
Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

template <typename Row, typename Make>
Json list_of(const std::vector<Row>& rows, Make make) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(make(row));
  return list;
}

Json json_of(const ExecutableFacts& facts) {
  const ElfFacts& elf = facts.executable.facts;
  Json json;
  json["path"] = facts.executable.path;
  json["link"] = link_of(facts) == nullptr ? Json() : Json(link_of(facts));
  json["bits"] = elf.is_64 ? 64 : 32;
  json["machine"] = elf.little_endian ? Json(machine_name(elf.machine)) : Json();
  json["interpreter"] = text_or_null(elf.interpreter);
  json["setuid"] = facts.setuid;
  json["setgid"] = facts.setgid;
  json["capabilities"] = facts.capabilities;
  json["loads_guard"] = facts.examined.answer ? Json(facts.loads_guard()) : Json();
  json["linked"] = list_of(facts.linked, [](const LinkedLibrary& library) -> Json {
    return {{"name", library.name},
            {"path", text_or_null(library.path)},
            {"needed_by", library.needed_by}};
  });
  json["mapped"] = facts.mapped;
  json["not_found"] = facts.not_found;
  json["runtimes"] = list_of(facts.runtimes, [](const RuntimeFact& runtime) -> Json {
    return {{"kind", runtime.name.empty() ? "static" : "shared"},
            {"name", text_or_null(runtime.name)},
            {"version", text_or_null(runtime.version)},
            {"file", text_or_null(runtime.file)}};
  });
  json["copies"] = list_of(facts.copies, [](const DriverCopy& copy) -> Json {
    return {{"path", copy.path}, {"run_path_of", copy.of}};
  });
  json["names"] = list_of(facts.names, [](const OwnName& name) -> Json {
    return {{"name", name.name},
            {"kind", name.variable ? "variable" : "function"},
            {"file", name.file},
            {"taken", name.taken}};
  });
  json["sanitizers"] = list_of(facts.sanitizers, [](const Sanitizer& sanitizer) -> Json {
    return {{"kind", sanitizer.kind},
            {"name", text_or_null(sanitizer.name)},
            {"path", text_or_null(sanitizer.path)}};
  });
  return json;
}

Json json_of(const Guarded& guarded) {
  return {{"run", name_of(guarded.run)},
          {"preload", name_of(guarded.preload)},
          {"reasons", list_of(guarded.reasons, [](const Reason& reason) -> Json {
             return {{"id", reason.id},
                     {"run", name_of(reason.run)},
                     {"preload", name_of(reason.preload)},
                     {"file", reason.file},
                     {"text", reason.why}};
           })}};
}

}  // namespace

nlohmann::ordered_json program_json(const ProgramFacts& facts, const Guarded& guarded) {
  Json json;
  json["name"] = facts.name;
  json["path"] = facts.program.path;
  json["files"] = facts.program.files;
  json["env_words"] = text_or_null(facts.program.env_words);
  json["script_preloads"] = facts.script_preloads;
  json["executables"] = list_of(
      facts.executables, [](const ExecutableFacts& executable) { return json_of(executable); });
  json["broken_files"] = list_of(facts.broken, [](const BrokenFile& broken) -> Json {
    return {{"path", broken.path}, {"missing", broken.missing}};
  });
  json["guarded"] = json_of(guarded);
  return json;
}

}  // namespace cudaguard::launcher
