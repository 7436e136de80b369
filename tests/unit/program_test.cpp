// SPDX-License-Identifier: Apache-2.0
#include "policy/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cudaguard {
namespace {

using namespace std::string_view_literals;

/// The arguments of a text whose words have no blanks.
std::string arguments_of(std::string words) {
  std::ranges::replace(words, ' ', '\0');
  return words.empty() ? words : words + '\0';
}

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
  const std::pair<Starter, std::vector<const char*>> cases[] = {
      {Starter::kNamed,
       {"python3 app.py", "./a", "sh run.sh", "bash --norc -eo pipefail run.sh", "bash run.sh -c",
        "perl -w tool -e", "perl -C7 tool -e"}},
      {Starter::kFurtherOut,
       {"sh -c nvidia-smi|head", "bash -lc nvidia-smi", "bash -l -c nvidia-smi",
        "bash -eu -o pipefail -c nvidia-smi", "bash --norc -euo pipefail -c a.sh",
        "flock lock nvidia-smi", "bash -s -- stable", "bash /proc/self/fd/3 x",
        "tini -- nvidia-smi", "timeout 9 nvidia-smi", "fish -c nvidia-smi", "ksh93 -c nvidia-smi"}},
      {Starter::kCode,
       {"python3 -c x", "perl -we x", "python3 -u - x.py", "python3 /dev/fd/63", "python3 -i",
        "ruby", "R --no-save"}},
      {Starter::kNobody,
       {"bash --rcfile x", "bash -i", "-bash", "bash", "bash --init-file a.sh", "fish",
        "/x/cudaguard run", ""}}};
  for (const auto& [starter, rows] : cases) {
    for (const char* row : rows) EXPECT_EQ(starter_of(arguments_of(row)), starter) << row;
  }
}

TEST(Program, ScriptAfterOtherOptionsIsKnownByItsName) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"x.pl", {"perl -w x.pl y", "perl -Ilib x.pl", "perl -Mstrict x.pl", "perl -I lib x.pl"}},
      {"/dev/fd/63", {"bash /dev/fd/63"}},
      {"x.rb", {"ruby -I/opt/rails/lib x.rb", "ruby -rpp x.rb"}},
      {"x.py", {"python3 -Wonce x.py"}},
      {"x.php", {"php -dmemory_limit=1 x.php"}},
      {"",
       {"perl -eMstrict x.pl", "sh -mc x.sh", "python3 --check train", "perl -we x.pl",
        "node --eval x.js", "bash -lc x.sh", "python3 - x.py", "python3 -u - x.py",
        "bash --rcfile a.sh b.sh"}},
      {"x.js", {"node --expose-gc x.js"}},
      {"x.sh", {"bash -o pipefail x.sh", "sh -ex x.sh", "bash --no x.sh"}},
      {"x.lua", {"lua -lfoo x.lua"}},
      {"train", {"python3 -u -W x.py train", "python3 -Iu train -c", "python3 -uW x.py train -c"}},
      {"b.js", {"node -r a.js b.js"}},
      {"tool",
       {"perl -w tool -e", "perl -wT tool -e", "perl -Mstrict tool -e",
        "bash -euo pipefail tool -c", "perl -- tool -e", "perl -I lib -w tool",
        "ruby -wI lib tool"}}};
  for (const auto& [name, rows] : cases) {
    for (const char* row : rows) {
      const std::string arguments = arguments_of(row);
      std::string_view rest = arguments;
      const Interpreter* interpreter = interpreter_of(take_argument(rest));
      EXPECT_EQ(script_of(*interpreter, arguments, {}).name, name) << row;
    }
  }
}

TEST(Program, ScriptOfUnknownOptionsIsKnownByItsNameBeforeOtherFilesAre) {
  const auto first = [](const std::string& arguments, std::string_view files) {
    ScriptSearch search(arguments);
    std::string_view word = search.next();
    while (!word.empty() && find(files, std::string(word).c_str()) == std::string_view::npos) {
      word = search.next();
    }
    return std::string(word);
  };
  const char* const cases[][3] = {
      {"java -cp lib.jar Main data.csv", "lib.jar data.csv", ""},
      {"java -Dcfg=/etc/passwd Main", "/etc/passwd", ""},
      {"java -Xmx1g -jar app.jar x.csv", "app.jar x.csv", "app.jar"},
      {"julia -J my.core s.jl", "my.core s.jl", "s.jl"},
      {"julia --project train.jl a.csv", "train.jl a.csv", "train.jl"},
      {"sbcl --core my.core --script s", "my.core s", "s"},
      {"Rscript -e x data.csv", "data.csv", ""},
      {"R --args data.csv", "data.csv", ""},
      {"R --no-echo --file=a.R", "a.R", "a.R"},
      {"dotnet exec --runtimeconfig c.json app.dll", "c.json app.dll", "app.dll"},
      {"gp -q cu.x other.x", "cu.x other.x", "cu.x"},
      {"deno run --allow-all cu.x", "cu.x", "cu.x"},
      {"/usr/lib/beam.smp -noshell /etc/passwd", "/etc/passwd", ""}};
  for (const auto& [arguments, files, script] : cases) {
    EXPECT_EQ(first(arguments_of(arguments), files), script) << arguments;
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
