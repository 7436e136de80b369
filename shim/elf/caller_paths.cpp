// SPDX-License-Identifier: Apache-2.0
#include "shim/elf/caller_paths.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

#include "policy/text.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

/// A search path as ld.so reports it.
struct SearchPath {
  union {
    Dl_serinfo info;
    char bytes[32768];
  };

  bool read(const Loader& the, const void* address) {
    link_map* map = object_of(the, address);
    if (map == nullptr || the.dlinfo == nullptr) return false;
    Dl_serinfo size = {};
    if (the.dlinfo(map, RTLD_DI_SERINFOSIZE, &size) == 0 && size.dls_size <= sizeof bytes) {
      info.dls_size = size.dls_size;
      info.dls_cnt = size.dls_cnt;
      if (the.dlinfo(map, RTLD_DI_SERINFO, &info) == 0) return true;
    }
    the.dlerror();
    return false;
  }
  bool has(const char* directory) const {
    for (unsigned i = 0; i < info.dls_cnt; ++i) {
      if (elf_detail::same(info.dls_serpath[i].dls_name, directory)) return true;
    }
    return false;
  }
};

struct Room {
  SearchPath callers;
  SearchPath everybodys;
  char path[4352];
};

void* open_in(const Loader& the, const char* directory, const char* name, Room& room) {
  Text path(room.path, sizeof room.path - 1);
  path.put(directory).put("/").put(name);
  if (path.cut()) return nullptr;
  room.path[path.view().size()] = '\0';
  struct stat status = {};
  if (sys::stat(room.path, &status) != 0) return nullptr;
  void* handle = the.dlopen(room.path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) the.dlerror();
  return handle;
}

}  // namespace

void* open_on_callers_path(const Loader& the, const char* name, const void* caller) {
  const sys::Mapped<Room> room;
  if (!room || !room->callers.read(the, caller)) return nullptr;
  // The guard has no run path, so its own search path is the one that all callers share. glibc does
  // not report where a directory of a search path comes from.
  if (!room->everybodys.read(the, reinterpret_cast<const void*>(&open_on_callers_path))) {
    return nullptr;
  }
  const Dl_serinfo& directories = room->callers.info;
  for (unsigned i = 0; i < directories.dls_cnt; ++i) {
    const char* directory = directories.dls_serpath[i].dls_name;
    if (room->everybodys.has(directory)) continue;
    void* found = open_in(the, directory, name, *room);
    if (found != nullptr) return found;
  }
  return nullptr;
}

bool expand_origin(const Loader& the, const char* path, const void* caller, char* to, size_t size) {
  std::string_view rest = path;
  Text out(to, size - 1);
  for (const std::string_view token :
       {std::string_view("$ORIGIN"), std::string_view("${ORIGIN}")}) {
    if (!rest.starts_with(token)) continue;
    rest = tail(rest, token.size());
    const link_map* map = object_of(the, caller);
    const std::string_view object = map != nullptr ? map->l_name : "";
    if (object.empty()) {
      const long length = sys::readlink("/proc/self/exe", to, size - 1);
      if (length <= 0) return false;
      out.put(directory_of({to, static_cast<size_t>(length)}));  // in place: a prefix of itself
    } else {
      out.put(directory_of(object));
    }
    break;
  }
  out.put(rest);
  to[out.view().size()] = '\0';
  return !out.cut() && rest.find('$') == std::string_view::npos;
}

}  // namespace cudaguard
