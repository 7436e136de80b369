// SPDX-License-Identifier: Apache-2.0
// A constructor and main() note in the file NOTES that they ran.
#include <stdio.h>
#include <stdlib.h>
static void note(const char* what) {
  FILE* file = fopen(getenv("NOTES"), "a");
  fputs(what, file);
  fclose(file);
}
__attribute__((constructor)) static void early(void) { note("constructor "); }
int main(void) {
  note("main ");
  return 0;
}
