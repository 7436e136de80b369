// SPDX-License-Identifier: Apache-2.0
// Compares step() with libunwind's remote mode, over random registers of a real process. Both read
// the same memory and find a file's tables by ProcessImage, so the only difference is how they read
// the call frame information. Prints how many steps it compared and exits with 1 at a difference.
//   compare ROUNDS PROGRAM WORD...
#include <libunwind-x86_64.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "shim/launcher/unwind/call_frame.h"
#include "tests/launcher/random.h"
#include "tests/unwind/traced.h"

extern "C" int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t, unw_word_t, unw_dyn_info_t*,
                                                  unw_proc_info_t*, int, void*);

namespace {

using namespace cudaguard::launcher;

/// On x86-64, both use DWARF's register numbers.
constexpr unsigned kPreserved[] = {3, 6, 7, 12, 13, 14, 15, 16};

struct State {
  State(pid_t thread, const std::string& maps) : process(thread), image(maps) {}
  WaitingProcess process;
  ProcessImage image;
  Registers registers;
  bool has_no_table = false;
  bool asked_unknown = false;  ///< libunwind has asked for an unknown register
};

State& state_of(void* argument) { return *static_cast<State*>(argument); }

int find_table(unw_addr_space_t space, unw_word_t code, unw_proc_info_t* found, int need,
               void* argument) {
  State& state = state_of(argument);
  WordReader memory(state.process, 100000);
  const uint64_t tables = state.image.find(memory, code).tables;
  const auto count = memory.word<uint32_t>(tables + 8);
  int result = -UNW_ENOINFO;
  if (tables != 0 && count) {
    unw_dyn_info_t info = {};
    info.format = UNW_INFO_FORMAT_REMOTE_TABLE;
    info.end_ip = ~unw_word_t{0};
    info.u.rti.segbase = tables;
    info.u.rti.table_data = tables + 12;
    info.u.rti.table_len = *count;
    result = UNW_OBJ(dwarf_search_unwind_table)(space, code, &info, found, need, argument);
  }
  state.has_no_table = state.has_no_table || result != 0;
  return result;
}

int read_word(unw_addr_space_t /*space*/, unw_word_t address, unw_word_t* value, int is_write,
              void* argument) {
  const bool done = is_write == 0 && state_of(argument).process.read(address, value, 8);
  return done ? 0 : -UNW_EINVAL;
}

int read_register(unw_addr_space_t /*space*/, unw_regnum_t number, unw_word_t* value, int is_write,
                  void* argument) {
  State& state = state_of(argument);
  const auto known = state.registers.get(static_cast<uint64_t>(number));
  state.asked_unknown = state.asked_unknown || !known;
  if (is_write != 0 || !known) return -UNW_EBADREG;
  *value = *known;
  return 0;
}

struct Range {
  uint64_t from;
  uint64_t size;
};

std::vector<Range> ranges(const std::string& maps, bool executable) {
  std::vector<Range> found;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    uint64_t from = 0;
    uint64_t to = 0;
    char dash = 0;
    std::string rights;
    words >> std::hex >> from >> dash >> to >> rights;
    const bool is_file = line.find('/') != std::string::npos;
    if (!executable || (rights.at(2) == 'x' && is_file)) found.push_back({from, to - from});
  }
  return found;
}

/// Returns the process's own registers with most of them replaced.
Registers random_registers(Random& random, const Registers& real, const std::vector<Range>& all,
                           const std::vector<Range>& code) {
  const auto any_of = [&](const std::vector<Range>& from) {
    const Range& range = from[random.below(from.size())];
    return range.from + random.below(range.size);
  };
  Registers registers = real;
  for (const unsigned number : kPreserved) {
    const uint64_t kind = random.below(8);
    if (kind < 3) registers.set(number, *real.get(7) + random.below(1024) * 8);
    if (kind == 3) registers.set(number, any_of(all));
    if (kind == 4) registers.set(number, random.below(UINT64_MAX));
    if (kind == 5) registers.set(number, random.below(3) * 8);
  }
  if (random.below(10) != 0) registers.set(7, *real.get(7) + random.below(1024) * 8);
  if (random.below(10) != 0) registers.set(16, any_of(code));
  return registers;
}

struct Counts {
  unsigned long states = 0;
  unsigned long steps = 0;
  unsigned long refused = 0;
  unsigned long different = 0;
};

/// Unwinds one stack with both. Returns false if they differ.
bool compare(State& state, unw_addr_space_t space, Counts& counts) {
  unw_cursor_t cursor;
  if (unw_init_remote(&cursor, space, &state) != 0) return false;
  Registers ours = state.registers;
  bool is_after_call = false;
  for (int depth = 0; depth < 64; ++depth) {
    const uint64_t code = *ours.get(16) - (is_after_call ? 1 : 0);
    const auto before = ours;
    WordReader memory(state.process, 100000);
    const MappedCode mapped = state.image.find(memory, code);
    const Step found = mapped.tables == 0 ? Step::kNoTable
                                          : step(kX86Processor, memory, mapped.tables, code, ours);
    const bool has_caller = found == Step::kCaller || found == Step::kSignal;
    if (has_caller && ours.get(7) == before.get(7) && ours.get(16) == before.get(16)) return true;
    state.has_no_table = state.asked_unknown = false;
    const int result = unw_step(&cursor);
    ++counts.steps;
    // libunwind refuses functions that save vector registers, for example in libffi.
    if (has_caller && result == -UNW_EBADREG && !state.asked_unknown) return ++counts.refused != 0;
    // Since 1.7, libunwind returns 0 at a caller whose address is 0, as it does without a caller.
    unw_word_t next = 1;
    const bool ends = result == 0 && unw_get_reg(&cursor, 16, &next) == 0 && next == 0;
    bool is_same = has_caller == ((result > 0 || (has_caller && ends)) && !state.has_no_table);
    for (const unsigned number : kPreserved) {
      unw_word_t value = 0;
      if (!has_caller || !is_same) break;
      const bool is_known = unw_get_reg(&cursor, static_cast<int>(number), &value) == 0;
      const auto own = ours.get(number);
      is_same = is_known == own.has_value() && (!is_known || value == *own);
    }
    if (!is_same) {
      printf("%s+0x%lx: step() says %d, libunwind %d%s; after %d steps\n",
             std::string(mapped.file).c_str(), static_cast<unsigned long>(mapped.offset),
             static_cast<int>(found), result, state.has_no_table ? " without a table" : "", depth);
      for (const unsigned number : kPreserved) {
        unw_word_t value = 0;
        const int error = unw_get_reg(&cursor, static_cast<int>(number), &value);
        printf("  r%u: before 0x%lx ours 0x%lx libunwind 0x%lx (%d)\n", number,
               before.get(number).value_or(0), ours.get(number).value_or(0), value, error);
      }
      return false;
    }
    if (!has_caller || *ours.get(16) == 0 || !ours.get(7)) return true;
    is_after_call = found == Step::kCaller;
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  const pid_t thread = count > 2 ? run_until_signal(words + 2) : -1;
  if (thread <= 0) return 2;
  const std::string maps = WaitingProcess(thread).maps();
  unw_accessors_t accessors = {};
  accessors.find_proc_info = find_table;
  accessors.put_unwind_info = [](unw_addr_space_t, unw_proc_info_t*, void*) {};
  accessors.get_dyn_info_list_addr = [](unw_addr_space_t, unw_word_t*, void*) {
    return -UNW_ENOINFO;
  };
  accessors.access_mem = read_word;
  accessors.access_reg = read_register;
  accessors.access_fpreg = [](unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) {
    return -UNW_EBADREG;
  };
  unw_addr_space* const space = unw_create_addr_space(&accessors, 0);
  unw_set_caching_policy(space, UNW_CACHE_NONE);

  const auto all = ranges(maps, false);
  const auto code = ranges(maps, true);
  const Registers real = registers_of(thread);
  State state(thread, maps);
  Random random;
  Counts counts;
  const unsigned long rounds = strtoul(words[1], nullptr, 10);
  for (; counts.states < rounds; ++counts.states) {
    state.registers = counts.states == 0 ? real : random_registers(random, real, all, code);
    if (!compare(state, space, counts) && ++counts.different == 20) break;
  }
  printf("%lu states, %lu steps, %lu refused by libunwind, %lu different\n", counts.states,
         counts.steps, counts.refused, counts.different);
  return counts.different == 0 ? 0 : 1;
}
