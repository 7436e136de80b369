// SPDX-License-Identifier: Apache-2.0
// What is linked to this libdl.so.2 imports its names without a version, as objects of other
// linkers and of before glibc had versions do. At run time they get the system's.
__attribute__((visibility("default"))) void dlopen(void) {}
__attribute__((visibility("default"))) void dlmopen(void) {}
__attribute__((visibility("default"))) void dlclose(void) {}
__attribute__((visibility("default"))) void dlerror(void) {}
__attribute__((visibility("default"))) void dlsym(void) {}
__attribute__((visibility("default"))) void dlvsym(void) {}
