// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/examine_program.h"

#include <algorithm>
#include <set>

#include "policy/text.h"
#include "shim/launcher/doctor/examine_executable.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";
// An installer's script may have gigabytes behind it.
constexpr uint64_t kScriptText = uint64_t{1} << 20;

/// "a script, run by /usr/bin/env, then /usr/bin/python3"
std::string chain_of(const Program& program) {
  std::string chain;
  for (size_t i = 1; i < program.files.size(); ++i) {
    chain += (i > 1 ? ", then " : "a script, run by ") + printable(program.files[i]);
  }
  return chain;
}

bool is_shell_script(const Program& program) {
  static const std::set<std::string_view> shells = {"sh", "bash", "dash", "zsh", "ksh", "busybox"};
  return program.files.size() > 1 && shells.count(base_name(program.files.back())) != 0;
}

/// A script that says LD_PRELOAD itself.
bool script_preloads(const Program& program) {
  return std::any_of(program.files.begin(), program.files.end(), [](const std::string& path) {
    const FileBytes file(path);
    return !read_elf(file).is_elf && contains(file, kPreload, kScriptText);
  });
}

void judge_scripts(const Program& program, bool preloads, Reasons& reasons) {
  const std::string words = " (" + printable(program.env_words) + ")";
  if (program.env_clears) {
    reasons.push_back({"env_clears", Hold::kNo, Hold::kNo, program.path,
                       "its #! line has env take LD_PRELOAD away" + words});
  } else if (!program.env_words.empty()) {
    reasons.push_back({"env_unknown", Hold::kInPart, Hold::kInPart, program.path,
                       "what env starts by its #! line is not told" + words});
  }
  if (preloads) {
    reasons.push_back({"script_preload", Hold::kInPart, Hold::kInPart, program.path,
                       "the script says LD_PRELOAD itself, and may put something in our place"});
  }
}

void judge_broken(const std::vector<OwnFile>& broken, Reasons& reasons) {
  for (const OwnFile& file : broken) {
    if (std::any_of(reasons.begin(), reasons.end(),
                    [&](const Reason& reason) { return reason.file == file.path; })) {
      continue;
    }
    reasons.push_back({"installation", Hold::kInPart, Hold::kInPart, file.path,
                       printable(file.path) + " " + file.trouble()});
  }
}

}  // namespace

Row examine_program(const std::string& name, const Installation& installation,
                    const Variables& variables, const Fence& fence, int& code) {
  const Program program = find_program(name, variables.get("PATH"));
  Variables guarded = variables;
  guarded.set(kPreload, preload_list(variables.get(kPreload), {}, {installation.guard}));
  std::vector<OwnFile> broken = look_at_own_files(installation);
  std::erase_if(broken,
                [](const OwnFile& file) { return !file.stand_in || file.trouble() == nullptr; });
  Reasons reasons;
  if (config_of(variables).policy == Policy::kOff) {
    reasons.push_back({"policy_off", Hold::kNo, Hold::kNo, program.path,
                       "CUDAGUARD_POLICY is OFF here (cudaguard run --cpu goes before it)"});
  }
  Row executables = {"executables", Json::array(), {}};
  for (const Executable& executable : program.executables) {
    const Row row =
        examine_executable(executable, {program, installation, guarded, broken}, reasons);
    executables.value.push_back(row.value);
    executables.lines += row.lines;
  }
  const bool preloads = script_preloads(program);
  judge_scripts(program, preloads, reasons);
  judge_broken(broken, reasons);
  Json broken_files = Json::array();
  for (const OwnFile& file : broken) {
    broken_files.push_back({{"path", file.path}, {"missing", file.missing}});
  }
  const Hold run = hold_of(reasons, &Reason::run);
  code = run == Hold::kYes ? 0 : run == Hold::kInPart ? 1 : 2;
  return group(
      "program",
      {{"name", name, {}},
       {"path", program.path,
        named("program",
              {printable(program.path), chain_of(program),
               is_shell_script(program) ? "what the script starts is not looked at" : ""})},
       {"files", program.files, {}},
       {"env_words", or_null(program.env_words), {}},
       {"script_preloads", preloads, {}},
       executables,
       {"broken_files", broken_files, {}},
       row_of(reasons, fence.holds)});
}

}  // namespace cudaguard::launcher
