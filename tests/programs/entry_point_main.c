// SPDX-License-Identifier: Apache-2.0
// The program whose entry point is in a library.
int entry_point_main(int argc, char** argv);

int main(int argc, char** argv) { return entry_point_main(argc, argv); }
