// SPDX-License-Identifier: Apache-2.0
#include "shim/null_driver/proc_address.h"

#include <cstddef>

namespace {

struct Row {
  int32_t name;   // from the start of the table
  int32_t entry;  // from this field
  uint32_t version;
  uint32_t per_thread;
};

}  // namespace

// entries.S makes the rows from the table of names, ordered by name, per_thread, version.
extern "C" [[gnu::visibility("hidden")]] const Row cg_lookup_rows[];

namespace cudaguard {
namespace {

// The name by which programs ask for each row.
constexpr const char* kRowNames[] = {
#define CG_BASE(name)
#define CG_ROW(base, name, version, per_thread) #base,
#include "driver_lookup.inc"
#undef CG_BASE
#undef CG_ROW
};
constexpr size_t kRows = sizeof kRowNames / sizeof kRowNames[0];

constexpr bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

constexpr uint32_t hash_of(const char* name) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 16777619U;
  return hash ^ (hash >> 15);
}

// A runtime asks for 700 names when it starts, so the compiler makes a hash index. A place holds a
// name's first row, or kNone. A name whose place is taken is in the next free one.
constexpr size_t kPlaces = 2048;
constexpr uint16_t kNone = 0xffff;
static_assert(kRows < kPlaces / 2);

struct Index {
  uint16_t first[kPlaces];
};

constexpr Index make_index() {
  Index index = {};
  for (auto& place : index.first) place = kNone;
  for (size_t row = 0; row < kRows; ++row) {
    if (row > 0 && same(kRowNames[row], kRowNames[row - 1])) continue;
    size_t place = hash_of(kRowNames[row]) % kPlaces;
    while (index.first[place] != kNone) place = (place + 1) % kPlaces;
    index.first[place] = static_cast<uint16_t>(row);
  }
  return index;
}
constexpr Index kIndex = make_index();

const char* name_of(const Row& row) {
  return reinterpret_cast<const char*>(cg_lookup_rows) + row.name;
}

// Returns the first row of the name, kRows if there is none.
size_t first_row(const char* name) {
  for (size_t place = hash_of(name) % kPlaces;; place = (place + 1) % kPlaces) {
    const size_t row = kIndex.first[place];
    if (row == kNone) return kRows;
    if (same(name_of(cg_lookup_rows[row]), name)) return row;
  }
}

void* entry_of(const Row& row) {
  return const_cast<char*>(reinterpret_cast<const char*>(&row.entry)) + row.entry;
}

}  // namespace

LookupAnswer find_entry(const char* name, uint32_t version, bool per_thread) {
  bool known = false;
  const Row* plain = nullptr;
  const Row* threaded = nullptr;
  bool has_threaded = false;
  const size_t first = first_row(name);
  // Rows of one name follow each other and share its text.
  for (size_t i = first; i < kRows && cg_lookup_rows[i].name == cg_lookup_rows[first].name; ++i) {
    const Row& row = cg_lookup_rows[i];
    known = true;
    has_threaded = has_threaded || row.per_thread != 0;
    if (row.version <= version) (row.per_thread != 0 ? threaded : plain) = &row;
  }
  if (!known) return {Lookup::kUnknownName, nullptr};
  const Row* chosen = per_thread && has_threaded ? threaded : plain;
  if (chosen == nullptr) return {Lookup::kVersionTooLow, nullptr};
  return {Lookup::kFound, entry_of(*chosen)};
}

}  // namespace cudaguard
