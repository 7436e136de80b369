// SPDX-License-Identifier: Apache-2.0
#include "policy/library.h"

#include <gtest/gtest.h>

#include <string>

namespace cudaguard {
namespace {

TEST(Library, Driver_IsRecognisedByEveryName) {
  for (const char* name :
       {"libcuda.so", "libcuda.so.1", "libcuda.so.535.261.03", "libcuda.so.1.9",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/../lib/libcuda.so", "./libcuda.so.1",
        "/usr/local/cuda/compat/libcuda.so.575.57.08", "a/libcuda.so"}) {
    EXPECT_EQ(classify(name).library, Library::kDriver) << name;
  }
}

TEST(Library, Nvml_IsRecognisedByEveryName) {
  for (const char* name : {"libnvidia-ml.so", "libnvidia-ml.so.1", "/x/libnvidia-ml.so.535.54"}) {
    EXPECT_EQ(classify(name).library, Library::kNvml) << name;
  }
}

TEST(Library, Libc_IsRecognisedByEveryName) {
  for (const char* name :
       {"libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6", "libdl.so.2", "libdl.so", "libc.so"}) {
    EXPECT_EQ(classify(name).library, Library::kLibc) << name;
  }
}

TEST(Library, DebiansAlternatives_AreRecognised) {
  for (const char* triplet : {"", "-x86_64-linux-gnu", "-i386-linux-gnu", "-aarch64-linux-gnu",
                              "-powerpc64le-linux-gnu"}) {
    const std::string before = "/etc/alternatives/nvidia--";
    for (const char* name : {"libcuda.so", "libcuda.so.1"}) {
      EXPECT_EQ(classify(before + name + triplet).library, Library::kDriver) << name << triplet;
    }
    for (const char* name : {"libnvidia-ml.so", "libnvidia-ml.so.1"}) {
      EXPECT_EQ(classify(before + name + triplet).library, Library::kNvml) << name << triplet;
    }
    for (const auto& row : kRefusedLibraries) {
      const std::string name = std::string(row.name()) + ".1" + triplet;
      EXPECT_EQ(classify(before + name).refused, &row) << name;
      EXPECT_EQ(classify("glx--" + name).refused, &row) << name;
    }
  }
  for (const char* name :
       {"nvidia--libcudart.so.1-x86_64-linux-gnu", "nvidia--libcuda.so.1-x86_64-linux-gnu.bak",
        "nvidia--libcuda.so.1x-x86_64-linux-gnu", "libcuda.so.1-x86_64-linux-gnu",
        "nvidia--libcuda.so.1-x86_64", "nvidia--nvidia-smi", "nvidia---linux-gnu", "-linux-gnu",
        "mesa--libcuda.so.1", "nvidia--libcuda.so.1-linux-gnu/x",
        "glx--libGL.so.1-x86_64-linux-gnu"}) {
    EXPECT_EQ(classify(name).library, Library::kOther) << name;
  }
}

TEST(Library, Decoys_AreOtherLibraries) {
  for (const char* name : {"",
                           "/",
                           "lib",
                           "libcuda",
                           "libcuda.so-like.so",
                           "libcuda.so.",
                           "libcuda.so..1",
                           "libcuda.so1",
                           "libcuda.so.1.bak",
                           "libcuda.so.x",
                           "libcuda.so.1.",
                           "xlibcuda.so.1",
                           "libcudart.so",
                           "libcudart.so.12",
                           "libcudadebugger.so.1",
                           "libcudnn.so.9",
                           "LIBCUDA.SO.1",
                           "libcuda.so.1/",
                           "libcuda.so.1/x.so",
                           "libnvidia-ml.so.1x",
                           "libnvidia-mlx.so.1",
                           "libc++.so.1",
                           "libltdl.so.7",
                           "libc.so.6.bak",
                           "libonnxruntime_providers_shared.so",
                           "libnvidia-opencl.so.old",
                           "libnvidia-cfg-like.so.1"}) {
    EXPECT_EQ(classify(name).library, Library::kOther) << name;
  }
}

TEST(Library, Refused_EachRowHasAReasonAndANameThatCannotExist) {
  for (const auto& row : kRefusedLibraries) {
    const LibraryRequest request = classify(row.name());
    ASSERT_EQ(request.library, Library::kRefused) << row.never;
    EXPECT_EQ(request.refused, &row);
    EXPECT_TRUE(std::string_view(row.never).starts_with("/proc/self/cudaguard-refused/lib"))
        << row.never;
    EXPECT_TRUE(row.name().starts_with("lib") && row.name().ends_with(".so")) << row.never;
  }
  EXPECT_EQ(classify("libnvidia-opencl.so.1").library, Library::kRefused);
  EXPECT_EQ(classify("libnvidia-cfg.so.1").library, Library::kRefused);
  EXPECT_EQ(classify("/x/libnvidia-cfg.so.535.261.03").library, Library::kRefused);
  EXPECT_EQ(classify("/a/libonnxruntime_providers_cuda.so").library, Library::kRefused);
}

}  // namespace
}  // namespace cudaguard
