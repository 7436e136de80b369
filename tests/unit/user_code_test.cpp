// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include <gtest/gtest.h>

namespace cudaguard {
namespace {

TEST(UserCode, Files) {
  for (const char* file :
       {"/home/u/ppo.py", "ppo.py", "<string>", "<stdin>", "<ipython-input-3-0a1b>", "",
        "/tmp/ipykernel_7/123.py", "/home/u/site-packages.py", "/usr/local/bin/torchrun",
        "/home/u/frozen/a.py", "/home/u/libpython3/a.py"}) {
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

TEST(UserCode, Dataclass) {
  EXPECT_FALSE(is_user_code("<string>", "__init__"));
  EXPECT_TRUE(is_user_code("<string>", "<module>"));
  EXPECT_TRUE(is_user_code("<stdin>", "__init__"));
}

TEST(UserCode, Modules) {
  for (const char* module :
       {"/usr/lib/libcuda.so.1", "libcudart.so.12", "libcudart-d0da41ae.so.11.0",
        "/usr/lib/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libffi.so.8.1.2",
        "_ctypes.cpython-311-x86_64-linux-gnu.so", "_cffi_backend.cpython-38.so",
        "libOpenCL.so.1.0.0", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2",
        "/opt/lib/libcudaguard.so", "libcudaguard-driver.so"}) {
    EXPECT_TRUE(passes_calls_on(module)) << module;
  }
  for (const char* module : {"/opt/torch/lib/libc10_cuda.so", "train", "", "libcublas.so.12",
                             "/home/u/libcudart/app", "libffistuff.so", "libcc.so"}) {
    EXPECT_FALSE(passes_calls_on(module)) << module;
  }
}

}  // namespace
}  // namespace cudaguard
