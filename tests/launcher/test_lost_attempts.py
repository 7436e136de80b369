# SPDX-License-Identifier: Apache-2.0
"""verify hears of an attempt before the process counts it as reported. So no attempt is lost if
something else happens to its thread while the launcher is busy. The programs stop the launcher, so
that each attempt has to wait for it."""

from support import harness
from launcher import test_verify_tree
from support.observed import box

# A child of the program lets the launcher go on after a while. KILL is no signal for `busy`, because
# the kernel takes the call back then.
PROGRAMS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static int (*init)(unsigned);
static sigjmp_buf out;
static pid_t launcher;
static void busy(void) {
  if (launcher == 0) return;
  if (fork() == 0) {
    setsid();
    usleep(700000);
    kill(launcher, SIGCONT);
    _exit(0);
  }
  kill(launcher, SIGSTOP);
}
static void leave(int number) { (void)number; siglongjmp(out, 1); }
static void fork_and_leave(int number) {
  (void)number;
  if (fork() == 0) { init(0); _exit(0); }
  siglongjmp(out, 1);
}
static void soon(void (*handler)(int)) {
  struct itimerval once = {{0, 0}, {0, 30000}};
  signal(SIGALRM, handler);
  setitimer(ITIMER_REAL, &once, NULL);
}
static void* ask_and_end(void* none) {
  init(0);
  _exit(0);
  return none;
}
int main(int count, char** words) {
  if (count < 3) return 9;
  launcher = strcmp(words[2], "0") == 0 ? 0 : atoi(words[2]);
  init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  busy();
  if (strcmp(words[1], "jump") == 0) {
    soon(leave);
    if (sigsetjmp(out, 1) == 0) init(0);
  } else if (strcmp(words[1], "jump-and-ask-again") == 0) {
    soon(leave);
    if (sigsetjmp(out, 1) == 0) init(0);
    init(0);
  } else if (strcmp(words[1], "fork-in-handler") == 0) {
    soon(fork_and_leave);
    if (sigsetjmp(out, 1) == 0) init(0);
  } else if (strcmp(words[1], "killed-by-alarm") == 0) {
    soon(SIG_DFL);
    init(0);
  } else if (strcmp(words[1], "threads") == 0) {
    pthread_t one;
    pthread_create(&one, NULL, ask_and_end, NULL);
    usleep(30000);
    ask_and_end(NULL);
  } else {
    return 8;
  }
  return 0;
}
"""
SHAPES = ("jump", "jump-and-ask-again", "fork-in-handler", "killed-by-alarm", "threads")


class LostAttempts(test_verify_tree.Case):
    def setUp(self):
        super().setUp()
        self.need("gcc")
        self.program = self.compile("shapes", PROGRAMS, "-pthread", "-ldl")

    def shape(self, name, launcher):
        # The shell forgets how the program ended.
        return ["sh", "-c", '"$0" %s %s; true' % (name, launcher), self.program]

    def test_attempt_is_reported(self):
        for name in SHAPES:
            with self.subTest(name):
                result, tree = self.tree(self.shape(name, "$PPID"))
                self.ends(result, 1, " asked for CUDA, in ")
                # The thread that sees the other one's call as known may end the process before
                # verify has read the details (docs/limits.md).
                details = " by shapes| or the like" if name == "threads" else " by shapes"
                self.assertRegex(result.err, "cuInit(%s)" % details)
                self.assertEqual(tree["doubts"], [], result)

    def test_control_unguarded_programs_ask(self):
        for name in SHAPES:
            unguarded = harness.run(self.shape(name, "0"), world="none", guard=False, trace=False,
                                    env=box.environment())
            self.assertTrue(unguarded.fake_calls, unguarded)

    def test_many_threads_and_jumps_at_any_time(self):
        """Without a stopped launcher, so by chance."""
        for name in ("jump", "threads"):
            words = ["sh", "-c", 'for i in $(seq 50); do "$0" %s 0; done' % name, self.program]
            result, tree = self.tree(words)
            self.ends(result, 1, ", in 50 of ")
            self.assertEqual(tree["doubts"], [], result)
