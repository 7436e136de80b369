// SPDX-License-Identifier: Apache-2.0
#include "policy/program.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace cudaguard {
namespace {

using namespace std::string_view_literals;

TEST(Program, InterpreterIsRecognisedByItsNameAndVersion) {
  for (const char* name :
       {"python3.14t", "deno", "julia-1.10", "rakudo-m", "R", "beam.smp", "sh"}) {
    EXPECT_NE(interpreter_of(name), nullptr) << name;
  }
  for (const char* name : {"", "t", "gpt", "gpg", "javac", "shutdown", "node_exporter", "Rx"}) {
    EXPECT_EQ(interpreter_of(name), nullptr) << name;
  }
  EXPECT_TRUE(is_interpreter("/usr/lib/libpython2.7.so.1.0"));
  EXPECT_TRUE(is_interpreter("/usr/bin/python2.7"));
  EXPECT_FALSE(is_interpreter("/usr/lib/libtorch_python.so"));
}

TEST(Program, ProgramIsWrittenWithItsScript) {
  const auto written = [](std::string_view arguments, std::string_view file) {
    char room[200];
    Text out(room, sizeof room);
    return std::string(put_program(out, arguments, file).view());
  };
  EXPECT_EQ(written("/usr/bin/deno\0run\0/x/cu.ts\0"sv, "/x/cu.ts"), "deno cu.ts");
  EXPECT_EQ(written("/usr/bin/deno\0repl\0"sv, {}), "deno");
  EXPECT_EQ(written("python3\0-m\0pkg\0"sv, {}), "python3 -m pkg");
  EXPECT_EQ(written("./train\0s3cret\0"sv, {}), "train");
}

TEST(Program, StarterIsAProgramThatDoesMoreThanStart) {
  for (const auto& [arguments, starter] :
       {std::pair{"python3\0app.py\0"sv, Starter::kNamed},
        std::pair{"./a\0"sv, Starter::kNamed},
        std::pair{"sh\0run.sh\0"sv, Starter::kNamed},
        std::pair{"bash\0--norc\0-eo\0pipefail\0run.sh\0"sv, Starter::kNamed},
        std::pair{"sh\0-c\0nvidia-smi | head\0"sv, Starter::kFurtherOut},
        std::pair{"bash\0-lc\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"bash\0-l\0-c\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"bash\0-eu\0-o\0pipefail\0-c\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"bash\0--norc\0-euo\0pipefail\0-c\0a.sh\0"sv, Starter::kFurtherOut},
        std::pair{"flock\0lock\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"bash\0-s\0--\0stable\0"sv, Starter::kFurtherOut},
        std::pair{"python3\0-c\0x\0"sv, Starter::kCode},
        std::pair{"perl\0-we\0x\0"sv, Starter::kCode},
        std::pair{"python3\0-u\0-\0x.py\0"sv, Starter::kCode},
        std::pair{"python3\0/dev/fd/63\0"sv, Starter::kCode},
        std::pair{"bash\0/proc/self/fd/3\0x\0"sv, Starter::kFurtherOut},
        std::pair{"tini\0--\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"bash\0run.sh\0-c\0"sv, Starter::kNamed},
        std::pair{"perl\0-w\0tool\0-e\0"sv, Starter::kNamed},
        std::pair{"perl\0-C7\0tool\0-e\0"sv, Starter::kNamed},
        std::pair{"bash\0--rcfile\0x\0"sv, Starter::kNobody},
        std::pair{"bash\0-i\0"sv, Starter::kNobody},
        std::pair{"timeout\0"
                  "9\0nvidia-smi\0"sv,
                  Starter::kFurtherOut},
        std::pair{"-bash\0"sv, Starter::kNobody},
        std::pair{"bash\0"sv, Starter::kNobody},
        std::pair{"bash\0--init-file\0a.sh\0"sv, Starter::kNobody},
        std::pair{"fish\0"sv, Starter::kNobody},
        std::pair{"fish\0-c\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"ksh93\0-c\0nvidia-smi\0"sv, Starter::kFurtherOut},
        std::pair{"python3\0-i\0"sv, Starter::kCode},
        std::pair{"ruby\0"sv, Starter::kCode},
        std::pair{"R\0--no-save\0"sv, Starter::kCode},
        std::pair{"/x/cudaguard\0run\0"sv, Starter::kNobody},
        std::pair{""sv, Starter::kNobody}}) {
    EXPECT_EQ(starter_of(arguments), starter) << arguments;
  }
}

TEST(Program, ScriptAfterOtherOptionsIsKnownByItsName) {
  const auto script = [](std::string_view arguments) {
    std::string_view rest = arguments;
    return script_of(*interpreter_of(take_argument(rest)), arguments, {}).name;
  };
  for (const auto& [arguments, name] : {std::pair{"perl\0-w\0x.pl\0y\0"sv, "x.pl"sv},
                                        std::pair{"perl\0-Ilib\0x.pl\0"sv, "x.pl"sv},
                                        std::pair{"perl\0-Mstrict\0x.pl\0"sv, "x.pl"sv},
                                        std::pair{"bash\0/dev/fd/63\0"sv, "/dev/fd/63"sv},
                                        std::pair{"ruby\0-I/opt/rails/lib\0x.rb\0"sv, "x.rb"sv},
                                        std::pair{"python3\0-Wonce\0x.py\0"sv, "x.py"sv},
                                        std::pair{"php\0-dmemory_limit=1\0x.php\0"sv, "x.php"sv},
                                        std::pair{"perl\0-eMstrict\0x.pl\0"sv, ""sv},
                                        std::pair{"sh\0-mc\0x.sh\0"sv, ""sv},
                                        std::pair{"node\0--expose-gc\0x.js\0"sv, "x.js"sv},
                                        std::pair{"bash\0-o\0pipefail\0x.sh\0"sv, "x.sh"sv},
                                        std::pair{"sh\0-ex\0x.sh\0"sv, "x.sh"sv},
                                        std::pair{"lua\0-lfoo\0x.lua\0"sv, "x.lua"sv},
                                        std::pair{"python3\0-u\0-W\0x.py\0train\0"sv, "train"sv},
                                        std::pair{"python3\0--check\0train\0"sv, ""sv},
                                        std::pair{"perl\0-we\0x.pl\0"sv, ""sv},
                                        std::pair{"node\0--eval\0x.js\0"sv, ""sv},
                                        std::pair{"node\0-r\0a.js\0b.js\0"sv, "b.js"sv},
                                        std::pair{"ruby\0-rpp\0x.rb\0"sv, "x.rb"sv},
                                        std::pair{"bash\0-lc\0x.sh\0"sv, ""sv},
                                        std::pair{"perl\0-w\0tool\0-e\0"sv, "tool"sv},
                                        std::pair{"perl\0-wT\0tool\0-e\0"sv, "tool"sv},
                                        std::pair{"perl\0-Mstrict\0tool\0-e\0"sv, "tool"sv},
                                        std::pair{"python3\0-Iu\0train\0-c\0"sv, "train"sv},
                                        std::pair{"bash\0-euo\0pipefail\0tool\0-c\0"sv, "tool"sv},
                                        std::pair{"perl\0--\0tool\0-e\0"sv, "tool"sv},
                                        std::pair{"python3\0-uW\0x.py\0train\0-c\0"sv, "train"sv},
                                        std::pair{"perl\0-I\0lib\0x.pl\0"sv, "x.pl"sv},
                                        std::pair{"perl\0-I\0lib\0-w\0tool\0"sv, "tool"sv},
                                        std::pair{"ruby\0-wI\0lib\0tool\0"sv, "tool"sv},
                                        std::pair{"bash\0--no\0x.sh\0"sv, "x.sh"sv},
                                        std::pair{"python3\0-\0x.py\0"sv, ""sv},
                                        std::pair{"python3\0-u\0-\0x.py\0"sv, ""sv},
                                        std::pair{"bash\0--rcfile\0a.sh\0b.sh\0"sv, ""sv}}) {
    EXPECT_EQ(script(arguments), name) << arguments;
  }
}

TEST(Program, ScriptOfUnknownOptionsIsKnownByItsNameBeforeOtherFilesAre) {
  const auto first = [](std::string_view arguments, std::string_view files) {
    ScriptSearch search(arguments);
    std::string_view word = search.next();
    while (!word.empty() && find(files, std::string(word).c_str()) == std::string_view::npos) {
      word = search.next();
    }
    return word;
  };
  for (const auto& [arguments, files, script] :
       {std::tuple{"java\0-cp\0lib.jar\0Main\0data.csv\0"sv, "lib.jar data.csv", ""},
        std::tuple{"java\0-Dcfg=/etc/passwd\0Main\0"sv, "/etc/passwd", ""},
        std::tuple{"java\0-Xmx1g\0-jar\0app.jar\0x.csv\0"sv, "app.jar x.csv", "app.jar"},
        std::tuple{"julia\0-J\0my.core\0s.jl\0"sv, "my.core s.jl", "s.jl"},
        std::tuple{"julia\0--project\0train.jl\0a.csv\0"sv, "train.jl a.csv", "train.jl"},
        std::tuple{"sbcl\0--core\0my.core\0--script\0s\0"sv, "my.core s", "s"},
        std::tuple{"Rscript\0-e\0x\0data.csv\0"sv, "data.csv", ""},
        std::tuple{"R\0--args\0data.csv\0"sv, "data.csv", ""},
        std::tuple{"R\0--no-echo\0--file=a.R\0"sv, "a.R", "a.R"},
        std::tuple{"dotnet\0exec\0--runtimeconfig\0c.json\0app.dll\0"sv, "c.json app.dll",
                   "app.dll"},
        std::tuple{"gp\0-q\0cu.x\0other.x\0"sv, "cu.x other.x", "cu.x"},
        std::tuple{"deno\0run\0--allow-all\0cu.x\0"sv, "cu.x", "cu.x"},
        std::tuple{"/usr/lib/beam.smp\0-noshell\0/etc/passwd\0"sv, "/etc/passwd", ""}}) {
    EXPECT_EQ(first(arguments, files), script) << arguments;
  }
}

TEST(Program, RandomNumberIsNoPartOfALibrarysName) {
  for (const auto& [path, name] :
       {std::pair{"/tmp/libxgboost4j_gpu8270807879039814774.so", "libxgboost4j_gpu.so"},
        std::pair{"/var/tmp/jna2917826453298473.tmp", "jna.tmp"},
        std::pair{"/x/libfoo8270807879039814774.so", "libfoo.so"},
        std::pair{"/x/libfoo-20231115.so", "libfoo-20231115.so"},
        std::pair{"/tmp/libnvinfer.so.10.1.0", "libnvinfer.so.10.1.0"}, std::pair{"", ""}}) {
    char room[64];
    EXPECT_EQ(lasting_name(path, room, sizeof room), name);
  }
  char small[4];
  EXPECT_EQ(lasting_name("/tmp/libx123456789.so", small, sizeof small), "libx123456789.so");
}

}  // namespace
}  // namespace cudaguard
