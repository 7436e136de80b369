// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace cudaguard {
namespace {

bool is_user_code(std::string_view file, std::string_view function) {
  return whose_code(file, function, true) == Whose::kUsers;
}

TEST(UserCode, UserFilesAreRecognised) {
  for (const char* file :
       {"/home/u/ppo.py", "ppo.py", "<string>", "<stdin>", "<ipython-input-3-0a1b>", "<stdin>-0",
        "<python-input-1>", "<console>", "<doctest a.b[0]>", "/tmp/ipykernel_7/123.py",
        "/home/u/site-packages.py", "/usr/local/bin/torchrun", "/home/u/frozen/a.py",
        "/home/u/libpython3/a.py"}) {
    EXPECT_TRUE(is_user_code(file, "f")) << file;
  }
  for (const char* file :
       {"/home/u/venv/lib/python3.11/site-packages/torch/cuda/__init__.py",
        "/usr/lib/python3/dist-packages/numpy/__init__.py", "/usr/lib/python3.11/runpy.py",
        "/usr/lib64/python3.9/threading.py", "/opt/conda/lib/python3.12/threading.py",
        "/usr/lib/python311.zip/runpy.py", "<frozen importlib._bootstrap>", "<frozen runpy>",
        "<__array_function__ internals>", "<attrs generated init a.B>", "<eval_with_key>.3"}) {
    EXPECT_FALSE(is_user_code(file, "f")) << file;
  }
}

TEST(UserCode, ProgramsAddOnsArePackages) {
  for (const char* file : {"/home/u/venv/lib/python3.11/site-packages/torch/cuda/__init__.py",
                           "/usr/lib/python3/dist-packages/numpy/__init__.py",
                           "/usr/share/blender/scripts/startup/bl_ui/__init__.py",
                           "/opt/blender/4.2/scripts/addons_core/cycles/properties.py"}) {
    EXPECT_EQ(whose_code(file, "f", false), Whose::kPackages) << file;
  }
  for (const char* file : {"/usr/lib64/python3.9/threading.py", "/usr/lib/python311.zip/runpy.py",
                           "/root/.pyenv/versions/3.13.1/lib/python3.13t/runpy.py",
                           "/opt/conda/envs/x/lib/python3.12/runpy.py", "<frozen runpy>"}) {
    EXPECT_EQ(whose_code(file, "f", false), Whose::kPythons) << file;
  }
}

TEST(UserCode, CodeWithoutAFileIsBelowTheUsersFiles) {
  EXPECT_EQ(whose_code("<string>", "f", false), Whose::kNoFile);
  EXPECT_EQ(whose_code("<dynamic-code>", "f", false), Whose::kNoFile);
  for (const char* file : {"<class 'networkx.utils.decorators.argmap'> compilation 4",
                           "<@beartype(vendored.plain) at 0x7f71079039c0>", "<makefun-gen-0>",
                           "<boltons.funcutils.FunctionBuilder-0>", "<lambdifygenerated-1>"}) {
    EXPECT_EQ(whose_code(file, "f", true), Whose::kGenerated) << file;
  }
  // A console runs what the user has typed: bpython, code.interact.
  EXPECT_EQ(whose_code("<bpython-input-4>", "<module>", false), Whose::kNoFile);
  EXPECT_EQ(whose_code("<input>", "<module>", false), Whose::kNoFile);
  EXPECT_EQ(whose_code("<lambdifygenerated-1>", "<lambda>", false), Whose::kGenerated);
  EXPECT_TRUE(has_no_file("<string>"));
  EXPECT_TRUE(has_no_file(""));
  EXPECT_FALSE(has_no_file("a<b.py"));
}

TEST(UserCode, StartOfABundledProgramIsNeverNamed) {
  for (const char* file : {"/x/unzipped_pexes/4/12a7/.bootstrap/pex/pex.py",
                           "src/freeze_core/initscripts/__startup__.py",
                           "/x/lib/python3.11/site-packages/freeze_core/initscripts/console.py",
                           "/x/lib/python3.11/site-packages/cx_Freeze/initscripts/__startup__.py",
                           "PyInstaller/loader/pyimod02_importers.py"}) {
    EXPECT_EQ(whose_code(file, "run", false), Whose::kPythons) << file;
  }
  for (const char* file : {"threading.py", "multiprocessing/process.py", "pyi_rth_inspect.py"}) {
    EXPECT_TRUE(is_runner(file)) << file;
  }
  EXPECT_FALSE(is_runner("my/threading.py"));
}

struct Frame {
  const char* file;
  const char* function;
};

/// Returns the number of the chosen frame, or -1.
int choice_of(std::initializer_list<Frame> frames, bool is_command = false) {
  FrameChoice choice;
  int chosen = -1;
  int at = 0;
  for (const Frame& frame : frames) {
    const Whose whose = whose_code(frame.file, frame.function, is_command);
    if (choice.takes(whose, frame.file, frame.function)) chosen = at;
    ++at;
  }
  return chosen;
}

constexpr Frame kLibrary = {"/usr/lib/python3.11/threading.py", "run"};
constexpr Frame kInner = {"/x/site-packages/torch/cuda/__init__.py", "is_available"};
constexpr Frame kOuter = {"/x/site-packages/torch/utils/collect_env.py", "<module>"};
constexpr Frame kRunpy = {"<frozen runpy>", "_run_code"};
constexpr Frame kUsers = {"/home/u/ppo.py", "main"};
constexpr Frame kCommandLine = {"<string>", "<module>"};
constexpr Frame kGenerated = {"<makefun-gen-0>", "plain"};
constexpr Frame kExecuted = {"<string>", "wrapper"};
constexpr Frame kSpawn = {"/usr/lib/python3.11/multiprocessing/spawn.py", "spawn_main"};
constexpr Frame kServer = {"/usr/lib/python3.11/multiprocessing/forkserver.py", "main"};
constexpr Frame kStart = {"/usr/lib/python3.11/multiprocessing/process.py", "start"};

TEST(FrameChoice, IsTheInnermostOfTheUsers) {
  EXPECT_EQ(choice_of({kInner, kUsers, kOuter, {"/home/u/run.py", "<module>"}}), 1);
  EXPECT_EQ(choice_of({kInner, kLibrary, kUsers, kLibrary}), 2);
  EXPECT_EQ(choice_of({kInner, kCommandLine}), 1);
  // The user's files are preferred to code without a file.
  EXPECT_EQ(choice_of({kInner, kGenerated, kExecuted, kUsers}), 3);
  EXPECT_EQ(choice_of({kInner, kExecuted, kGenerated, kOuter}), 1);
  EXPECT_EQ(choice_of({kInner, {"<dynamic-code>", "f"}, kExecuted, kOuter}), 1);
  EXPECT_EQ(choice_of({kExecuted, kUsers, kCommandLine}, true), 0);
}

TEST(FrameChoice, WithoutOneIsTheOutermostOfAPackage) {
  EXPECT_EQ(choice_of({kInner, kOuter, kRunpy, kRunpy}), 1);
  EXPECT_EQ(choice_of({kLibrary, kInner, kLibrary}), 1);
  // A package's file is preferred to code that a library made.
  EXPECT_EQ(choice_of({kInner, kGenerated, kLibrary}), 0);
  EXPECT_EQ(choice_of({kGenerated, kInner, kLibrary}), 1);
  EXPECT_EQ(choice_of({kGenerated, {"<lambdifygenerated-1>", "f"}, kLibrary}), 0);
}

TEST(FrameChoice, IsNeverTheStandardLibraryNorMultiprocessingsCommandLine) {
  EXPECT_EQ(choice_of({}), -1);
  EXPECT_EQ(choice_of({kLibrary, kRunpy, {"<attrs generated init a.B>", "__init__"}}), -1);
  EXPECT_EQ(choice_of({kInner, kLibrary, kSpawn, kCommandLine}), 0);
  EXPECT_EQ(choice_of({kUsers, kLibrary, kServer, kCommandLine}), 0);
  EXPECT_EQ(choice_of({kLibrary, kServer, kCommandLine}), -1);
  // The user's own python -c starts a child by fork.
  EXPECT_EQ(choice_of({kInner, kStart, kCommandLine}), 2);
}

TEST(CodeLine, NamesTheFile) {
  for (const auto& [file, words] :
       {std::pair{"/home/u/ppo.py", "ppo.py:3"}, std::pair{"<string>", "<string>:3"},
        std::pair{"/x/site-packages/torch/utils/collect_env.py", "torch/utils/collect_env.py:3"},
        std::pair{"/x/site-packages/a/site-packages/b/c.py", "b/c.py:3"},
        std::pair{"/x/site-packages/dist-packages/c.py", "c.py:3"},
        std::pair{"/usr/lib/python3/dist-packages/numpy/__init__.py", "numpy/__init__.py:3"},
        std::pair{"/tmp/ipykernel_7/2815143473.py", "notebook cell, line 3"},
        std::pair{"<ipython-input-12-0a1b>", "notebook cell 12, line 3"},
        std::pair{"<ipython-input-", "notebook cell , line 3"},
        std::pair{"/x/site-packages/ipykernel_launcher.py", "ipykernel_launcher.py:3"},
        std::pair{"/tmp/ipykernel_", "ipykernel_:3"}, std::pair{"/home/user1/a.py", "a.py:3"},
        std::pair{"/dev/fd/63", "/dev/fd/63:3"}, std::pair{"/proc/self/fd/3", "/proc/self/fd/3:3"},
        std::pair{"/dev/stdin", "/dev/stdin:3"}, std::pair{"/home/u/fd/3", "3:3"},
        std::pair{"/dev/shm/fd/a.py", "a.py:3"}, std::pair{"", ":3"},
        std::pair{"/a/\x1b.py", "\x1b.py:3"}}) {
    const CodeLine code = code_line(file, 3);
    EXPECT_EQ(
        std::string(code.before).append(code.name).append(code.after) + std::to_string(code.line),
        words);
  }
}

TEST(UserCode, UnknownLineIsOmitted) {
  for (const auto& [file, name] :
       {std::pair{"/x/ppo.py", "ppo.py"}, std::pair{"/tmp/ipykernel_7/2815143473.py", ""},
        std::pair{"<ipython-input-12-0a1b>", "12"}}) {
    const CodeLine code = code_line(file, 0);
    EXPECT_EQ(code.name, name);
    EXPECT_EQ(std::string(code.after), "");
  }
}

TEST(UserCode, MethodsOfADataclassAreNotUserCode) {
  EXPECT_FALSE(is_user_code("<string>", "__init__"));
  EXPECT_FALSE(is_user_code("<string>", "__repr__"));
  EXPECT_TRUE(is_user_code("<string>", "<module>"));
  EXPECT_TRUE(is_user_code("<stdin>", "__init__"));
}

TEST(UserCode, ForwardingModulesAreRecognised) {
  for (const char* module :
       {"/usr/lib/libcuda.so.1", "libcudart.so.12", "libcudart-d0da41ae.so.11.0",
        "/usr/lib/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libffi.so.8.1.2",
        "_ctypes.cpython-311-x86_64-linux-gnu.so", "_cffi_backend.cpython-38.so",
        "libOpenCL.so.1.0.0", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2",
        "/opt/lib/libcudaguard.so", "libcudaguard-driver.so"}) {
    EXPECT_TRUE(passes_calls_on(module)) << module;
  }
  for (const char* module : {"libgomp.so.1.0.0", "libgomp-plugin-nvptx.so.1.0.0", "libomp.so.5",
                             "libgomp-a34b3233.so.1", "libomp-14.so.5", "libomptarget.so.19.1",
                             "/usr/lib/llvm-14/lib/libomptarget.rtl.cuda.so"}) {
    EXPECT_TRUE(passes_calls_on(module)) << module;
  }
  for (const char* module :
       {"/lib/x86_64-linux-gnu/libc-2.31.so", "/lib64/ld-2.28.so", "libdl-2.31.so", "libdl.so.2",
        "libpthread-2.31.so", "libpthread.so.0"}) {
    EXPECT_TRUE(passes_calls_on(module)) << module;
  }
  for (const char* module : {"/opt/torch/lib/libc10_cuda.so", "train", "", "libcublas.so.12",
                             "/home/u/libcudart/app", "libffistuff.so", "libcc.so", "libompi.so"}) {
    EXPECT_FALSE(passes_calls_on(module)) << module;
  }
}

}  // namespace
}  // namespace cudaguard
