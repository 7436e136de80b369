// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/caller_paths.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

#include "policy/text.h"
#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/guard/system.h"

namespace cudaguard {

namespace {

struct SearchPath {
  const void* caller;
  const char* callers = nullptr;         // DT_RUNPATH, else DT_RPATH: colon separated
  const char* callers_object = nullptr;  // the file that has it
  const char* programs = nullptr;        // the program's DT_RPATH
};

const char* entry_text(const ElfW(Dyn) * dynamic, ElfW(Addr) base, ElfW(Sxword) tag) {
  const char* strings = elf_detail::read_tables(dynamic, base).strings;
  for (; dynamic != nullptr && strings != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == tag) return strings + dynamic->d_un.d_val;
  }
  return nullptr;
}

int visit(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& search = *static_cast<SearchPath*>(data);
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  const bool program = object->dlpi_name == nullptr || *object->dlpi_name == '\0';
  if (program && search.programs == nullptr) {
    search.programs = entry_text(dynamic, object->dlpi_addr, DT_RPATH);
  }
  if (!holds(*object, search.caller)) return 0;
  search.callers = entry_text(dynamic, object->dlpi_addr, DT_RUNPATH);
  if (search.callers == nullptr) {
    search.callers = entry_text(dynamic, object->dlpi_addr, DT_RPATH);
  }
  search.callers_object = program ? "" : object->dlpi_name;
  return 0;
}

struct Room {
  char origin[4096];
  char path[4352];
};

/// One folder of a search path, "$ORIGIN" replaced. Other tokens are not known here.
bool put_folder(Text& out, std::string_view folder, std::string_view origin) {
  for (const std::string_view token :
       {std::string_view("$ORIGIN"), std::string_view("${ORIGIN}")}) {
    if (folder.starts_with(token)) {
      if (origin.empty()) return false;
      out.put(origin);
      folder = tail(folder, token.size());
      break;
    }
  }
  if (folder.find('$') != std::string_view::npos) return false;
  out.put(folder);
  return true;
}

bool open_in(const Loader& the, std::string_view folders, std::string_view origin, const char* file,
             Room& room) {
  while (!folders.empty()) {
    const size_t end = folders.find(':');
    const std::string_view folder = head(folders, end);
    folders = end == std::string_view::npos ? std::string_view{} : tail(folders, end + 1);
    Text path(room.path, sizeof room.path - 1);
    if (folder.empty() || !put_folder(path, folder, origin)) continue;
    path.put("/").put(file);
    if (path.cut()) continue;
    room.path[path.view().size()] = '\0';
    struct stat status = {};
    if (sys::stat(room.path, &status) != 0) continue;
    if (the.dlopen(room.path, RTLD_LAZY | RTLD_LOCAL) != nullptr) return true;
    the.dlerror();
  }
  return false;
}

std::string_view program_folder(Room& room) {
  const long length = sys::readlink("/proc/self/exe", room.origin, sizeof room.origin);
  return length > 0 ? folder_of({room.origin, static_cast<size_t>(length)}) : std::string_view{};
}

}  // namespace

bool open_on_callers_path(const Loader& the, const char* file, const void* caller) {
  SearchPath search = {.caller = caller};
  dl_iterate_phdr(visit, &search);
  if (search.callers == nullptr && search.programs == nullptr) return false;
  const sys::Mapped<Room> room;
  if (!room) return false;
  if (search.callers != nullptr) {
    const std::string_view object = search.callers_object;
    const std::string_view origin = object.empty() ? program_folder(*room) : folder_of(object);
    if (open_in(the, search.callers, origin, file, *room)) return true;
  }
  return search.programs != nullptr &&
         open_in(the, search.programs, program_folder(*room), file, *room);
}

}  // namespace cudaguard
