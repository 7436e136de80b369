// SPDX-License-Identifier: Apache-2.0
// A program that is linked to this libdl.so.2 imports its names without a version, like objects of
// other linkers or from before glibc had versions. At run time it gets the system's libdl.
__attribute__((visibility("default"))) void dlopen(void) {}
__attribute__((visibility("default"))) void dlmopen(void) {}
__attribute__((visibility("default"))) void dlclose(void) {}
__attribute__((visibility("default"))) void dlerror(void) {}
__attribute__((visibility("default"))) void dlsym(void) {}
__attribute__((visibility("default"))) void dlvsym(void) {}
