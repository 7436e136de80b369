// SPDX-License-Identifier: Apache-2.0
// Executes its arguments.
#include <unistd.h>
int main(int argc, char** argv) { return argc > 1 ? execvp(argv[1], argv + 1) : 9; }
