// SPDX-License-Identifier: Apache-2.0
// The plug-ins of behave.cpp; PLUGIN_... says which.
#include <dlfcn.h>

#include <cstring>

#if defined(PLUGIN_VALUE)
extern "C" int value() { return PLUGIN_VALUE; }
#elif defined(PLUGIN_NESTED)
// Only this library's own DT_RUNPATH leads to the inner one.
extern "C" int open_inner() {
  void* handle = dlopen("libcginner.so", RTLD_NOW);
  if (handle == nullptr) return -2;
  auto* value = reinterpret_cast<int (*)()>(dlsym(handle, "value"));
  return value ? value() : -3;
}
extern "C" int inner_is_here() {
  return dlopen("libcginner.so", RTLD_NOW | RTLD_NOLOAD) != nullptr;
}
// The program's function asks: its directory counts, not ours.
extern "C" int call_back(void* (*open)(const char*)) { return open("libcgrunpath.so") != nullptr; }
#elif defined(PLUGIN_CHAIN)
extern "C" int cg_chain() {
  auto* next = reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "cg_chain"));
  return PLUGIN_CHAIN + (next ? 10 * next() : 0);
}
#elif defined(PLUGIN_UNDEFINED)
extern "C" int cg_nobody_has_this();
extern "C" int value() { return cg_nobody_has_this(); }
#elif defined(PLUGIN_THROWS)
static int g_caught = 0;
[[gnu::constructor]] static void throws() {
  try {
    throw 41;
  } catch (int value) {
    g_caught = value + 1;
  }
}
extern "C" int caught() { return g_caught; }
#elif defined(PLUGIN_LEAVES)
[[gnu::constructor]] static void leaves() { throw 43; }
#endif
