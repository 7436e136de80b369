// SPDX-License-Identifier: Apache-2.0
// Runs unwind() over a real process with random damage in its memory, its registers and its list of
// mappings. Built with sanitizers. Prints counts and exits with 1 if a stack is longer than
// allowed.
//   unwind_fuzz ROUNDS PROGRAM WORD...
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "shim/launcher/unwind/unwind.h"
#include "tests/launcher/random.h"
#include "tests/unwind/traced.h"

namespace {

using namespace cudaguard::launcher;

/// This view reads each page of the process only once.
class DamagedProcess : public ProcessView {
 public:
  DamagedProcess(pid_t thread, Random& random)
      : process_(thread), random_(random), maps_(process_.maps()) {}

  /// Sets how often a byte is wrong in the next stack: one byte in that many, or none if 0.
  void damage(uint64_t memory, uint64_t maps) {
    in_memory_ = memory;
    in_maps_ = maps;
  }
  bool read(uint64_t address, void* to, size_t size) override {
    auto* out = static_cast<char*>(to);
    for (size_t done = 0; done < size;) {
      const uint64_t offset = (address + done) % kPage;
      const std::string& page = page_at(address + done - offset);
      if (page.empty()) return false;
      done += page.copy(out + done, size - done, offset);
    }
    if (in_memory_ != 0 && random_.below(in_memory_) < size) {
      out[random_.below(size)] = static_cast<char>(random_.below(256));
    }
    return true;
  }
  std::string maps() override {
    std::string text = maps_;
    for (uint64_t i = in_maps_ == 0 ? 0 : random_.below(text.size() / in_maps_ + 2); i != 0; --i) {
      text[random_.below(text.size())] = "0123456789abcdef -\n/[rx"[random_.below(23)];
    }
    return text;
  }

 private:
  static constexpr uint64_t kPage = 4096;
  const std::string& page_at(uint64_t address) {
    if (pages_.size() > kMostPages) pages_.clear();
    const auto [found, is_new] = pages_.try_emplace(address);
    if (!is_new) return found->second;
    std::string page(kPage, '\0');
    if (process_.read(address, page.data(), kPage)) found->second = page;
    return found->second;
  }

  static constexpr size_t kMostPages = 100000;
  WaitingProcess process_;
  Random& random_;
  std::string maps_;
  std::map<uint64_t, std::string> pages_;
  uint64_t in_memory_ = 0;
  uint64_t in_maps_ = 0;
};

}  // namespace

int main(int count, char** words) {
  const pid_t thread = count > 2 ? run_until_signal(words + 2) : -1;
  if (thread <= 0) return 2;
  const Registers real = registers_of(thread);
  Random random;
  DamagedProcess process(thread, random);
  const size_t undamaged = unwind(process, real).frames.size();
  unsigned long frames = 0;
  unsigned long complete = 0;
  const unsigned long rounds = strtoul(words[1], nullptr, 10);
  for (unsigned long i = 0; i < rounds; ++i) {
    const uint64_t memory = uint64_t{1} << random.below(14);
    process.damage(random.below(8) == 0 ? 0 : memory, random.below(4) == 0 ? 500 : 0);
    Registers registers = real;
    for (uint64_t number = 0; number < Registers::kCount; ++number) {
      if (random.below(16) == 0) registers.set(number, random.below(UINT64_MAX));
      if (random.below(16) == 0) registers.set(number, *real.get(7) + random.below(4096));
    }
    UnwindLimits limits;
    limits.words = random.below(8) == 0 ? random.below(1000) : limits.words;
    const NativeStack stack = unwind(process, registers, {}, limits,
                                     random.below(16) == 0 ? kArmProcessor : kX86Processor);
    if (stack.frames.size() > limits.frames) return 1;
    frames += stack.frames.size();
    complete += stack.cut.empty() ? 1 : 0;
  }
  printf("%lu rounds, %lu frames, %lu complete; undamaged %zu frames\n", rounds, frames, complete,
         undamaged);
  return undamaged == 0 || (rounds != 0 && frames <= rounds) ? 1 : 0;
}
