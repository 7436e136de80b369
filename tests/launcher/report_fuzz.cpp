// SPDX-License-Identifier: Apache-2.0
// The reader of records against forged ones: bytes flipped, pieces cut out, put in, doubled. Built
// with sanitizers. Says what it found; exits 1 where a byte that is not printable would be shown,
// where JSON is none, or where a line is not counted once.
#include <rapidjson/reader.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "policy/text.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/print/json.h"
#include "shim/launcher/print/print.h"
#include "tests/launcher/random.h"

namespace {

using namespace cudaguard::launcher;

constexpr const char* kWhole[] = {
    R"({"v":1,"ts":1795256748.494901,"pid":7,"event":"native",)"
    R"("native":["/opt/libcudart.so.12+0x34b5a","/opt/libc10_cuda.so+0x1a2b"]})",
    R"({"v":1,"ts":1795256748.494901,"pid":7,"ppid":6,"tid":7,"uid":1000,"host":"node7",)"
    R"("exe":"/usr/bin/python3.11","argv":["python3","ppo.py"],"cgroup":"/system.slice/x.service",)"
    R"("slurm":"1234","api":"cuInit","decision":"deny","caller":"/opt/libcudart.so.12+0x34b5a",)"
    R"("library":"libc10_cuda.so","code":"ppo.py:159",)"
    R"("python":[{"file":"/home/u/ppo.py","line":159,"function":"<module>"}]})",
    R"({"v":1,"ts":1795256748.1,"pid":8,"ppid":6,"tid":8,"uid":0,"host":"caf\u00e9\u202e",)"
    R"("exe":"/a","argv":["a\u001b[31m","\n"],"cgroup":"/kubepods/pod3f2a-11/x","api":"dlopen",)"
    R"("object":"libnvidia-opencl.so.1","decision":"deny","caller":"?","library":"generated code",)"
    R"("python_missing":"none","cut":["exe"]})",
    R"({"v":1,"ts":3,"pid":9,"ppid":6,"tid":9,"uid":0,"host":"h","exe":"/a","argv":[],"cgroup":"/",)"
    R"("event":"start","policy":"FORCE_CPU"})",
    R"({"v":1,"ts":4,"pid":9,"exe":"/a","argv":["a"],"api":"cuInit","object":"GPU-1,GPU-2",)"
    R"("event":"init","decision":"allow","result":0,"caller":"/x+0x1"})",
    R"({"v":1,"ts":5,"pid":9,"exe":"/a","argv":["a"],"api":"cuCtxCreate_v2","event":"context",)"
    R"("decision":"allow","device":3,"caller":"/x+0x1"})",
    "{}",
};

std::string forged(Random& random) {
  std::string text;
  for (uint64_t i = 1 + random.below(6); i != 0; --i) {
    text.append(kWhole[random.below(std::size(kWhole))]).append(random.below(5) == 0 ? "" : "\n");
  }
  constexpr std::string_view kPieces[] = {"\n",
                                          "{\"v\":1,",
                                          "\"",
                                          "\\",
                                          "\\u0000",
                                          "\\ud800",
                                          "\xff",
                                          "\x1b[2J",
                                          "[[[[[[[[[[[[[[[[[[",
                                          "1e999",
                                          "-",
                                          "99999999999999999999",
                                          ",\"api\":\"",
                                          "}",
                                          "{",
                                          std::string_view("\0", 1)};
  for (uint64_t i = random.below(8); i != 0; --i) {
    const size_t place = random.below(text.size());
    const uint64_t kind = random.below(4);
    if (kind == 0) text[place] = static_cast<char>(random.below(256));
    if (kind == 1) text.erase(place, 1 + random.below(200));
    if (kind == 2) text.insert(place, kPieces[random.below(std::size(kPieces))]);
    if (kind == 3) text.insert(place, text.substr(random.below(text.size()), random.below(300)));
    if (text.empty()) text = "\n";
  }
  return text;
}

bool is_ascii(const std::string& text) {
  for (const char c : text) {
    if (c != '\n' && (c < ' ' || c > '~')) return false;
  }
  return true;
}

/// True if a terminal that shows UTF-8 shows each character as it is.
bool is_shown(std::string_view text) {
  while (!text.empty()) {
    if (text.front() == '\n') {
      text.remove_prefix(1);
      continue;
    }
    const std::string_view before = text;
    const std::string_view shown = cudaguard::take_printable(text);
    if (!before.starts_with(shown) || before.size() - text.size() != shown.size()) return false;
  }
  return true;
}

struct Counts {
  size_t records = 0;
  size_t torn = 0;
  size_t other = 0;
};

/// Empty, or what is wrong.
std::string examine(const std::string& text, Random& random, Counts& counts) {
  Records records;
  size_t lines = 0;
  size_t taken = 0;
  Lines stream([&](std::string_view line) {
    ++lines;
    // Memory of exactly its size.
    std::string own(line);
    own.shrink_to_fit();
    records.add(own, [&](std::string_view, const WriterFields& writer, const CallFields&) {
      taken += writer.pid != 0 ? 1 : 0;
    });
  });
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, 1 + random.below(500));
    stream.feed(part);
    rest.remove_prefix(part.size());
  }
  stream.finish();
  const Findings& findings = records.findings();
  counts.records += findings.records;
  counts.torn += findings.torn;
  counts.other += findings.not_understood;
  // A native record is handed on, too, but counts with the record of its call.
  if (taken < findings.records) return "a record is not handed on";
  if (taken + findings.torn + findings.not_understood < lines) return "a line is lost";
  std::string shown = text_of_findings(findings);
  for (const CallSite& site : findings.sites) {
    for (const size_t process : site.processes) {
      if (process >= findings.processes.size()) return "a process that is not there";
    }
  }
  Json all;
  const auto put_one = [&](const auto& one) { put(all, one); };
  all.begin_object().objects("calls", findings.sites, put_one);
  all.objects("places", findings.places, put_one);
  all.objects("processes", findings.processes, put_one);
  for (const ByWord& by : kByWords) {
    all.objects(by.word.data(), groups_of(findings, by.by), put_one);
  }
  const std::string json = all.end_object().text();
  if (!is_shown(shown) || !is_ascii(json)) return "shows what is not printable";
  rapidjson::StringStream stream_of_json(json.c_str());
  rapidjson::BaseReaderHandler<> nothing;
  if (rapidjson::Reader()
          .Parse<rapidjson::kParseValidateEncodingFlag>(stream_of_json, nothing)
          .IsError()) {
    return "is no JSON";
  }
  return {};
}

int fuzz(int rounds) {
  Random random;
  Counts counts;
  for (int round = 0; round < rounds; ++round) {
    const std::string text = forged(random);
    const std::string wrong = examine(text, random, counts);
    if (wrong.empty()) continue;
    printf("%s:\n%s\n", wrong.c_str(), text.c_str());
    return 1;
  }
  printf("%d files: %zu records, %zu torn, %zu others\n", rounds, counts.records, counts.torn,
         counts.other);
  // Neither so broken that nothing is read, nor so whole that nothing is tried.
  return counts.records != 0 && counts.torn != 0 && counts.other != 0 ? 0 : 1;
}

}  // namespace

// report_fuzz ROUNDS
int main(int argc, char** argv) {
  try {
    return argc == 2 ? fuzz(std::stoi(argv[1])) : 1;
  } catch (const std::exception& error) {
    printf("%s\n", error.what());
    return 1;
  }
}
