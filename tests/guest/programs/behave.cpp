// SPDX-License-Identifier: Apache-2.0
// What a program sees of dlopen and friends, printed. argv[1]: the directory of the plug-ins
// (absolute), argv[2]: "catch" and "leave" load, last of all, a library whose constructor lets an
// exception out.
#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

void error_text(const char* what) {
  const char* text = dlerror();
  std::printf("%s: dlerror=%s\n", what, text ? text : "(none)");
  text = dlerror();
  std::printf("%s: again=%s\n", what, text ? text : "(none)");
}

void* try_open(const char* what, const char* name, int mode) {
  errno = 4321;
  void* handle = dlopen(name, mode);
  std::printf("%s: %s errno=%d\n", what, handle ? "ok" : "null", errno);
  if (handle == nullptr) {
    error_text(what);
    return nullptr;
  }
  const char* pending = dlerror();
  std::printf("%s: pending=%s\n", what, pending ? pending : "(none)");
  if (name != nullptr) {
    link_map* map = nullptr;
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    std::printf("%s: file=%s\n", what, map ? map->l_name : "?");
  }
  return handle;
}

void call(const char* what, void* handle, const char* name) {
  auto* function = handle ? reinterpret_cast<int (*)()>(dlsym(handle, name)) : nullptr;
  std::printf("%s: %s()=%d\n", what, name, function ? function() : -1);
  if (function == nullptr) error_text(what);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  if (argc < 3) return 2;
  const std::string directory = argv[1];
  // This program's DT_RUNPATH is $ORIGIN/behave; the plug-in's name says nothing of a directory.
  void* runpath = try_open("runpath", "libcgrunpath.so", RTLD_NOW);
  call("runpath", runpath, "value");
  call("origin", try_open("origin", "$ORIGIN/behave/libcgorigin.so", RTLD_NOW), "value");
  // A plug-in with a RUNPATH of its own, that asks for a library only it can find.
  call("nested", try_open("nested", (directory + "/libcgnested.so").c_str(), RTLD_NOW),
       "open_inner");
  // Not to be found by this program: the nested plug-in's RUNPATH is its own.
  try_open("foreign", "libcginner_never_loaded.so", RTLD_NOW);
  // RTLD_NEXT chains: two preloaded-like libraries linked to this program, each asks for the next.
  auto* chain = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cg_chain"));
  std::printf("chain=%d\n", chain ? chain() : -1);
  std::printf("next=%s\n", dlsym(RTLD_NEXT, "cg_chain") ? "some" : "none");
  if (dlsym(RTLD_NEXT, "cg_nobody") == nullptr) error_text("next");
  // Error texts.
  try_open("missing", "libcg-does-not-exist.so.7", RTLD_NOW);
  try_open("missing-path", "/nonexistent/x.so", RTLD_LAZY);
  try_open("not-elf", (directory + "/not-elf.so").c_str(), RTLD_NOW);
  try_open("directory", directory.c_str(), RTLD_NOW);
  try_open("empty", "", RTLD_NOW);
  try_open("null", nullptr, RTLD_NOW);
  try_open("no-mode", (directory + "/libcgorigin.so").c_str(), 0);
  try_open("bad-mode", (directory + "/libcgorigin.so").c_str(), 0x7f000000);
  try_open("undefined", (directory + "/libcgundefined.so").c_str(), RTLD_NOW);
  try_open("noload-not", (directory + "/libcgthrows.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
  try_open("noload", (directory + "/libcgorigin.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
  // A pending error must survive a successful request as long as without us.
  dlopen("libcg-pending.so", RTLD_NOW);
  void* again = dlopen((directory + "/libcgorigin.so").c_str(), RTLD_NOW);
  std::printf("pending: handle=%s\n", again ? "ok" : "null");
  error_text("pending");
  (void)dlsym(runpath, "cg_no_such_symbol");
  error_text("no-symbol");
  // Namespaces: the library inside asks for another one; it must land in the same namespace.
  void* inside = dlmopen(LM_ID_NEWLM, (directory + "/libcgnested.so").c_str(), RTLD_NOW);
  std::printf("namespace: %s\n", inside ? "ok" : "null");
  if (inside == nullptr) {
    error_text("namespace");
  } else {
    Lmid_t where = 0;
    dlinfo(inside, RTLD_DI_LMID, &where);
    std::printf("namespace: another=%d\n", where != LM_ID_BASE);
    call("namespace", inside, "open_inner");
    call("namespace", inside, "inner_is_here");
    std::printf("namespace: close=%d\n", dlclose(inside));
  }
  using Callback = int (*)(void* (*)(const char*));
  void* base = dlopen((directory + "/libcgnested.so").c_str(), RTLD_NOW);
  auto* callback = base ? reinterpret_cast<Callback>(dlsym(base, "call_back")) : nullptr;
  std::printf("callback=%d\n",
              callback ? callback([](const char* n) { return dlopen(n, RTLD_NOW); }) : -1);
  try_open("mopen-missing", "libcg-none.so", RTLD_NOW);
  errno = 4321;
  void* none = dlmopen(LM_ID_BASE, "libcg-none.so", RTLD_NOW);
  std::printf("dlmopen: %s errno=%d\n", none ? "ok" : "null", errno);
  error_text("dlmopen");
  none = dlmopen(12345, (directory + "/libcgorigin.so").c_str(), RTLD_NOW);
  std::printf("dlmopen: bad namespace %s\n", none ? "ok" : "null");
  error_text("dlmopen");
  // A constructor that throws and catches, and one that lets it out through dlopen.
  call("throws", try_open("throws", (directory + "/libcgthrows.so").c_str(), RTLD_NOW), "caught");
  std::printf("close=%d\n", dlclose(runpath));
  if (std::strcmp(argv[2], "leave") == 0) dlopen((directory + "/libcgleaves.so").c_str(), RTLD_NOW);
  if (std::strcmp(argv[2], "catch") == 0) {
    try {
      void* handle = dlopen((directory + "/libcgleaves.so").c_str(), RTLD_NOW);
      std::printf("leaves: returned %s\n", handle ? "ok" : "null");
    } catch (int value) {
      std::printf("leaves: caught %d\n", value);
    }
  }
  std::printf("end\n");
  return 0;
}
