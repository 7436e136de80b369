// SPDX-License-Identifier: Apache-2.0
// Writes pages of verdicts and findings that are made up here, and what belongs to them: the text
// report, the document of --json. The sample "input" is of the records on standard input. What the
// machine has must not show in them, so the names of symbols and the source lines are made up, too.
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/print/print.h"
#include "tests/unit/command_of.h"

namespace {

using cudaguard::DriverApi;
using namespace cudaguard::launcher;

std::string symbol_of(const NativeFrame& frame) {
  static const std::map<uint64_t, std::string> names = {
      {0x34b5a, "cudaGetDeviceCount"},
      {0x41e93, "c10::cuda::device_count()"},
      {0x9a13f0, "THCPModule_getDeviceCount_wrap(_object*, _object*)"},
      {0x1d3f64, "_PyEval_EvalFrameDefault"}};
  const auto found = names.find(frame.offset);
  return found == names.end() ? "" : found->second;
}

std::string source_of(const PythonFrame& frame) {
  static const std::map<std::string, std::string> sources = {
      {"ppo.py:159",
       "device = torch.device(\"cuda\" if torch.cuda.is_available() and args.cuda else \"cpu\")"},
      {"__init__.py:133", "return torch._C._cuda_getDeviceCount() > 0"},
      {"memmap.py:41", "_cuda_count = torch.cuda.device_count()"},
      {"envs.py:22", "from tensordict import TensorDict"},
      {"sampler.py:88", "env = make_env(args.env_id, seed + rank)()"},
      {"monitor.py:17", "pynvml.nvmlInit()"}};
  const auto found =
      sources.find(frame.file.substr(frame.file.rfind('/') + 1) + ":" + std::to_string(frame.line));
  return found == sources.end() ? "" : found->second;
}

constexpr double kStart = 1795256748.25;
const std::string site_packages = "/opt/venv/lib/python3.11/site-packages/";

const std::vector<NativeFrame> native_frames = {
    {site_packages + "nvidia/cuda_runtime/lib/libcudart.so.12", 0x34b5a},
    {site_packages + "torch/lib/libc10_cuda.so", 0x41e93},
    {site_packages + "torch/lib/libtorch_python.so", 0x9a13f0},
    {"/usr/bin/python3.11", 0x1d3f64}};

/// A run that a sample is about; times are seconds from its start.
struct Run {
  Verdict verdict;

  Run(std::vector<std::string> command, double took) {
    verdict.command = std::move(command);
    verdict.started = kStart;
    verdict.ended = kStart + took;
    verdict.deny = {DriverApi::kCuda};
  }
  TreeTruth::Seen& seen(uint32_t pid, uint32_t ppid, const std::string& command, double first,
                        double last, bool guarded = true) {
    verdict.tree.seen.push_back(
        {pid, ppid, command_of(command), kStart + first, kStart + last, guarded, guarded});
    if (guarded) ++verdict.tree.guarded;
    return verdict.tree.seen.back();
  }
  /// Its number in the findings.
  size_t asked(uint32_t pid, uint32_t ppid, const std::string& command, double first, double at,
               const std::string& refused) {
    ObservedProcess process;
    process.host = "node7";
    process.pid = pid;
    process.ppid = ppid;
    process.uid = 1000;
    process.exe = "/usr/bin/python3.11";
    process.command = command_of(command);
    process.started = kStart + first;
    process.first = kStart + first;
    process.last = kStart + at;
    process.policy = "FORCE_CPU";
    process.only_start = false;
    process.refused.push_back(std::make_shared<const std::string>(refused));
    verdict.findings.processes.push_back(process);
    return verdict.findings.processes.size() - 1;
  }
  CallSite& site(DriverApi asked, const std::string& api, const std::string& library,
                 const std::string& line, double first) {
    CallSite one;
    one.asked = asked;
    one.api = api;
    one.library = library;
    one.line = line;
    one.first = kStart + first;
    verdict.findings.sites.push_back(one);
    return verdict.findings.sites.back();
  }
  void attempted(size_t site, size_t process, double at) {
    CallSite& one = verdict.findings.sites[site];
    one.processes.push_back(process);
    one.at.push_back(kStart + at);
  }
};

/// A trainer with 64 workers, a monitor that asks NVML alone, a child without the environment, and
/// a daemon that outlives the program.
Run training() {
  const std::string main = "python3 ppo.py --env-id HalfCheetah-v4 --num-envs 64";
  Run run({"python3", "ppo.py", "--env-id", "HalfCheetah-v4", "--num-envs", "64"}, 48.3);
  Verdict& verdict = run.verdict;
  verdict.status = 1 << 8;
  verdict.allow = {"monitor.py"};
  run.seen(41236, 41230, main, 0, 46.1);
  run.seen(41238, 41236, "git rev-parse --short HEAD", 1.2, 1.31);
  run.seen(41240, 41236, "python3 monitor.py --every 5", 3.1, 46);
  for (uint32_t i = 0; i < 64; ++i) {
    run.seen(41250 + i, 41236, "python3 sampler.py --rank " + std::to_string(i), 6.2 + 0.05 * i,
             44.8 + 0.01 * i);
  }
  run.seen(41330, 41236, "./render --frames 300", 30.5, 38.2, false);
  run.seen(41331, 41330, "ffmpeg -i - a.mp4", 31.0, 38.1, false);
  run.seen(41332, 41330, "ffmpeg -i - b.mp4", 31.1, 38.1, false);
  run.seen(41335, 41236, "su", 40, 41, false);
  run.seen(41340, 1, "wandb-service --port 40123", 4.0, 48.3);
  verdict.tree.unguarded = {{41330, command_of("./render --frames 300"),
                             "its environment has no LD_PRELOAD", true, kStart + 30.6},
                            {41331, command_of("ffmpeg -i - a.mp4"),
                             "its environment has no LD_PRELOAD", false, kStart + 31.2},
                            {41332, command_of("ffmpeg -i - b.mp4"),
                             "its environment has no LD_PRELOAD", false, kStart + 31.3}};
  for (TreeTruth::Unguarded& one : verdict.tree.unguarded) {
    one.program = one.has_driver ? "./render" : "/usr/bin/ffmpeg";
  }
  verdict.tree.unknown = {
      {41335, command_of("su"), "its memory cannot be read: another user's", false, kStart + 40}};

  CallSite& monitor =
      run.site(DriverApi::kNvml, "nvmlInit_v2", "ctypes/cffi", "monitor.py:17", 3.4);
  monitor.stack.python = {{site_packages + "pynvml/nvml.py", "nvmlInitWithFlags", 1934},
                          {site_packages + "pynvml/nvml.py", "nvmlInit", 1947},
                          {"/home/u/cleanrl/monitor.py", "<module>", 17}};
  monitor.stack.line_frame = 2;
  monitor.stack.native_missing = "no libgcc_s in the process";
  CallSite& ppo = run.site(DriverApi::kCuda, "cuInit", "libc10_cuda.so", "ppo.py:159", 4.9);
  ppo.stack.python = {{site_packages + "torch/cuda/__init__.py", "device_count", 133},
                      {site_packages + "torch/cuda/__init__.py", "is_available", 101},
                      {"/home/u/cleanrl/ppo.py", "<module>", 159}};
  ppo.stack.line_frame = 2;
  ppo.stack.native = native_frames;
  CallSite& worker = run.site(DriverApi::kCuda, "cuInit", "libc10_cuda.so", "envs.py:22", 8.4);
  worker.stack.python = {{site_packages + "torch/cuda/__init__.py", "device_count", 133},
                         {site_packages + "tensordict/memmap.py", "<module>", 41},
                         {"<frozen importlib._bootstrap>", "_find_and_load", 1176},
                         {site_packages + "tensordict/__init__.py", "<module>", 9},
                         {"/home/u/cleanrl/envs.py", "<module>", 22},
                         {"/home/u/cleanrl/sampler.py", "main", 88},
                         {"/home/u/cleanrl/sampler.py", "<module>", 131}};
  worker.stack.line_frame = 4;
  worker.stack.native = native_frames;
  run.attempted(0,
                run.asked(41240, 41236, "python3 monitor.py --every 5", 3.1, 3.4,
                          "nvmlInit_v2 by libffi.so.8"),
                3.4);
  run.attempted(1, run.asked(41236, 41230, main, 0, 4.9, "cuInit by libc10_cuda.so"), 4.9);
  for (uint32_t i = 0; i < 64; ++i) {
    const double at = 8.4 + 0.11 * i;
    run.attempted(2,
                  run.asked(41250 + i, 41236, "python3 sampler.py --rank " + std::to_string(i),
                            6.2 + 0.05 * i, at, "cuInit by libc10_cuda.so"),
                  at);
  }
  verdict.findings.records = 134;
  verdict.findings.torn = 1;
  return run;
}

Run clean() {
  Run run({"python", "-c", "import torch; print(torch.__version__)"}, 3.84);
  run.seen(812, 800, "python -c import torch; print(torch.__version__)", 0, 3.84);
  run.seen(815, 812, "/bin/sh -c /sbin/ldconfig -p 2>/dev/null", 1.9, 1.94);
  run.seen(816, 815, "/sbin/ldconfig -p", 1.91, 1.94);
  run.verdict.findings.records = 3;
  return run;
}

/// A C++ program without an attempt that failed; and one frame of each kind that is missing.
Run failed() {
  Run run({"./solver", "--mesh", "bracket.msh"}, 0.42);
  run.verdict.status = 11;
  run.seen(97, 90, "./solver --mesh bracket.msh", 0, 0.42);
  run.verdict.findings.records = 1;
  return run;
}

/// Everything that asked is allowed, and records may be missing.
Run allowed() {
  Run run({"make", "check"}, 90);
  Verdict& verdict = run.verdict;
  verdict.allow = {"probe*"};
  verdict.tree.doubts = {"there is no /proc"};
  verdict.tree.left = "probe-daemon &lt; (14)";
  run.seen(12, 11, "make check", 0, 90);
  run.seen(13, 12, "probe --all", 1, 2);
  run.site(DriverApi::kCuda, "dlopen", "libprobe.so", "", 1.5).object = "libcuda.so.1";
  run.site(DriverApi::kCuda, "cuInit", "libprobe.so", "", 1.6).denied = false;
  for (size_t i = 0; i < 2; ++i) {
    run.attempted(i, run.asked(13, 12, "probe --all", 1, 1.5, "cuInit by libprobe.so"), 1.5);
  }
  return run;
}

/// Three places, one of them seen by the fence alone, and a program that failed without sudo.
Run bypassed() {
  Run run({"./static"}, 3);
  Verdict& verdict = run.verdict;
  verdict.status = 1 << 8;
  verdict.no_new_privs = true;
  verdict.deny = {DriverApi::kCuda, DriverApi::kNvml};
  run.seen(31, 30, "./static", 0, 3);
  const size_t process = run.asked(31, 30, "./static", 0, 1, "ioctl");
  run.site(DriverApi::kCuda, "ioctl", "", "", 0.2).object = "0xc020462a RM_CONTROL";
  run.site(DriverApi::kCuda, "cuInit", "libcudart.so.12", "a.py:1", 0.4);
  run.site(DriverApi::kNvml, "nvmlInit_v2", "libnccl.so.2", "", 0.6);
  for (size_t i = 0; i < 3; ++i) run.attempted(i, process, 1);
  return run;
}

/// Whatever can be in a name.
Run forged(uint32_t count) {
  using std::string_literals::operator""s;
  const std::string bad =
      "</details><script>alert(1)</script>\"'&<b "
      "onclick=x>\0\x1b[31m\xff\xc3(\u202egpj.exe\n\r\t\u0085"
      "\xef\xbf\xbf</style>]]>--><!--\U0001f600 http://e.example/"s;
  Run run({bad, "-->", std::string(9000, '<')}, 1e300);
  Verdict& verdict = run.verdict;
  verdict.allow = {"x" + bad};
  verdict.status = 0x7f;
  verdict.tree.left = bad;
  for (uint32_t i = 0; i < count; ++i) {
    run.seen(i, i ^ 1, bad + std::to_string(i % 7), -1e300, 1e18 * i, i % 2 != 0);
    verdict.tree.unguarded.push_back({i, command_of(bad), bad, true, 0.0 / (i % 2)});
    verdict.tree.unguarded.back().program = bad;
    verdict.tree.unknown.push_back({i, command_of(bad), bad + std::to_string(i)});
    CallSite& site = run.site(static_cast<DriverApi>(i % 3), bad, bad, bad, 1e40 * i);
    site.object = bad;
    // No record holds more.
    site.stack.python = {100, {bad, bad, ~0U}};
    site.stack.native = {100, {bad, ~0UL}};
    site.stack.python_missing = site.stack.native_missing = bad;
    const size_t process = run.asked(i, i ^ 1, bad, 3, -7, bad);
    verdict.findings.processes[process].job = verdict.findings.processes[process].host = bad;
    verdict.findings.processes[process].rule = std::make_shared<const std::string>(bad);
    run.attempted(i, process, i);
  }
  return run;
}

/// `count` processes in a tree of three levels, every tenth of which asked.
Run large(uint32_t count) {
  Run run({"pytest", "-n", "40"}, 600);
  run.seen(2, 1, "pytest -n 40", 0, 600);
  run.site(DriverApi::kCuda, "cuInit", "libc10_cuda.so", "conftest.py:12", 3).stack.native =
      native_frames;
  for (uint32_t i = 3; i < count + 2; ++i) {
    const uint32_t parent = i < 43 ? 2 : 3 + i % 40;
    // Most differ in more than numbers.
    std::string command =
        "python3 case_" + std::string(1 + i % 50, static_cast<char>('a' + i % 26));
    if (i < 43) command = "pytest worker gw" + std::to_string(i - 3);
    const double first = i < 43 ? 1 : 2 + 590.0 * i / count;
    run.seen(i, parent, command, first, i < 43 ? 599 : first + 4);
    if (i % 10 == 0)
      run.attempted(0, run.asked(i, parent, command, first, first + 1, "cuInit by libc10_cuda.so"),
                    first + 1);
  }
  return run;
}

/// A page and the texts that belong to it.
struct Sample {
  std::string page;
  std::string text;
  std::string document;
};

Sample of_verdict(Run run) {
  decide(run.verdict);
  for (CallSite& site : run.verdict.findings.sites) {
    for (PythonFrame& frame : site.stack.python) frame.source = source_of(frame);
    for (NativeFrame& frame : site.stack.native) frame.symbol = symbol_of(frame);
  }
  const std::string text = text_of_verdict(run.verdict);
  return {page_of_verdict(run.verdict, text), text, document(run.verdict)};
}

Sample of_records(Findings findings, const std::string& title) {
  group_by_place(findings);
  const std::string text = text_of_findings(findings);
  return {page_of_records(findings, title, text), text, ""};
}

/// The records on standard input. No line may be lost.
Sample of_input() {
  Records records;
  size_t lines = 0;
  size_t taken = 0;
  Lines stream([&](std::string_view line) {
    ++lines;
    // Memory of exactly its size.
    std::string own(line);
    own.shrink_to_fit();
    records.add(own, [&](std::string_view, const WriterFields&, const CallFields&) { ++taken; });
  });
  char part[499];
  while (const size_t size = fread(part, 1, sizeof part, stdin)) stream.feed({part, size});
  stream.finish();
  const Findings& findings = records.findings();
  // A native record is handed on, too, but counts with the record of its call.
  const bool lost =
      taken < findings.records || taken + findings.torn + findings.not_understood < lines;
  if (lost) throw std::runtime_error("a line is lost");
  return of_records(findings, "412 files of /var/log/cudaguard");
}

}  // namespace

// page_samples DIRECTORY NAME...
int main(int count, char** words) {
  const std::map<std::string, std::function<Sample()>> samples = {
      {"fail", [] { return of_verdict(training()); }},
      {"pass", [] { return of_verdict(clean()); }},
      {"failed", [] { return of_verdict(failed()); }},
      {"allowed", [] { return of_verdict(allowed()); }},
      {"bypassed", [] { return of_verdict(bypassed()); }},
      {"forged", [] { return of_verdict(forged(12)); }},
      {"forged_report",
       [] { return of_records(forged(12).verdict.findings, forged(12).verdict.command[0]); }},
      {"worst", [] { return of_verdict(forged(500)); }},
      {"large", [] { return of_verdict(large(10000)); }},
      {"input", of_input},
      {"small_report", [] { return of_records(training().verdict.findings, "/tmp/run.jsonl"); }},
      {"empty", [] { return of_records(Findings(), "/dev/null"); }}};
  for (const std::string& name : std::vector<std::string>(words + 2, words + count)) {
    const Sample sample = samples.at(name)();
    for (const auto& [end, content] :
         {std::pair(".html", &sample.page), std::pair(".txt", &sample.text),
          std::pair(".json", &sample.document)}) {
      std::ofstream out(std::string(words[1]) + "/" + name + end, std::ios::binary);
      out << *content;
      if (!out.flush()) return 1;
    }
  }
  return 0;
}
