// SPDX-License-Identifier: Apache-2.0
// loads LIBRARY [deepbind]: loads the library and calls its plugin_begin if it has one.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW | (argc > 2 ? RTLD_DEEPBIND : 0));
  if (library == nullptr) {
    std::puts(dlerror());
    return 1;
  }
  auto* begin = reinterpret_cast<int (*)()>(dlsym(library, "plugin_begin"));
  if (begin != nullptr) std::printf("%d\n", begin());
}
