// SPDX-License-Identifier: Apache-2.0
// The program of the door that lies in a library.
int door_main(int argc, char** argv);

int main(int argc, char** argv) { return door_main(argc, argv); }
