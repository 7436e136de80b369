// SPDX-License-Identifier: Apache-2.0
// Prints what it sees of its terminal, then what happens to it.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static void print(const char* text) { (void)!write(1, text, strlen(text)); }
static void size(void) {
  struct winsize now = {0};
  char text[64];
  ioctl(0, TIOCGWINSZ, &now);
  snprintf(text, sizeof text, "size=%dx%d\n", now.ws_row, now.ws_col);
  print(text);
}
static void caught(int number) {
  if (number == SIGCONT) print("continued\n");
  if (number == SIGUSR1) print("usr1\n");
  if (number == SIGWINCH) size();
  if (number == SIGHUP) _exit(3);
}
static void take(int number) {
  struct sigaction action = {0};
  action.sa_handler = caught;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, NULL);
}
int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "";
  take(SIGCONT);
  take(SIGUSR1);
  take(SIGWINCH);
  if (strcmp(way, "hup") == 0) take(SIGHUP);
  printf("tty=%d%d%d leader=%d session=%d own-group=%d foreground=%d own-session-tty=%d\n",
         isatty(0), isatty(1), isatty(2), getpid() == getpgrp(), getpid() == getsid(0),
         getpgrp() == getpid(), tcgetpgrp(0) == getpgrp(), tcgetsid(0) == getsid(0));
  fflush(stdout);
  size();
  print("ready\n");
  char line[256];
  while (argc > 1) pause();
  while (fgets(line, sizeof line, stdin) != NULL) {
    printf("got %s", line);
    fflush(stdout);
  }
  return 7;
}
