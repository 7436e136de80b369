// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool has(std::string_view file, const char* parts) { return find_any(file, parts) != kNowhere; }

}  // namespace

Whose whose_code(std::string_view file, std::string_view function) {
  // A dataclass's; whose __post_init__ asks may be somebody else's.
  if (begins(file, "<string>\0") != 0 && begins(function, "__init__\0") != 0) {
    return Whose::kPythons;
  }
  // Blender's add-ons lie below its own directory.
  if (has(file, "/site-packages/\0/dist-packages/\0/usr/share/\0/scripts/addons\0")) {
    return Whose::kPackages;
  }
  // Below lib64/ too. NumPy, attrs, torch.fx and decorator make code of their own; "<string>" is
  // what `python -c` runs, "<ipython-input-...>" a cell.
  return has(file,
             "<frozen \0/lib/python3\0/lib64/python3\0"
             "<__array_function__ \0<attrs \0<eval_with_key>\0<decorator-gen\0")
             ? Whose::kPythons
             : Whose::kUsers;
}

bool FrameChoice::takes(std::string_view file, std::string_view function) {
  Whose whose = whose_code(file, function);
  // The command line of a child that multiprocessing spawns, which looks like the user's python -c.
  if (starts_child_ && file == "<string>") whose = Whose::kPythons;
  starts_child_ = (function == "spawn_main" && file.ends_with("/spawn.py")) ||
                  (function == "main" && file.ends_with("/forkserver.py"));
  if (is_final() || whose == Whose::kPythons) return false;
  best_ = whose;
  return true;
}

bool is_kernel_cell(std::string_view file) {
  constexpr char kFolder[] = "/ipykernel_\0";
  const std::string_view rest = tail(file, find_any(file, kFolder));
  return rest.size() >= sizeof kFolder - 1 && is_digit(rest.data()[sizeof kFolder - 2]);
}

CodeLine code_line(std::string_view file, unsigned line) {
  std::string_view rest = file;
  if (const size_t length = begins(file, "<ipython-input-\0"); length != 0) {
    rest = tail(file, length);
    return {"notebook cell ", head(rest, rest.find('-')), ", line ", line};
  }
  if (is_kernel_cell(file)) return {"notebook cell", {}, ", line ", line};
  for (size_t at = 0; at != kNowhere;) {
    at = find_any(rest, "/site-packages/\0/dist-packages/\0");
    if (at != kNowhere) rest = tail(rest, at + 15);
  }
  if (rest.size() == file.size()) rest = base_name(file);
  return {"", rest, ":", line};
}

bool passes_calls_on(std::string_view module) {
  return begins(base_name(module),
                "libcudaguard\0libcuda.so\0libcudart\0libnvidia-\0libffi.so\0_ctypes.\0"
                "_cffi_backend.\0libOpenCL.so\0libc.so\0ld-linux\0") != 0;
}

}  // namespace cudaguard
