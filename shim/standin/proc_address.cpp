// SPDX-License-Identifier: Apache-2.0
#include "proc_address.h"

#include <cstddef>

namespace {

struct Row {
  int32_t name;   // from the start of the table
  int32_t entry;  // from this field
  uint32_t version;
  uint32_t per_thread;
};

}  // namespace

// Made in entries.S from the table of names: ordered by name, per_thread, version.
extern "C" [[gnu::visibility("hidden")]] const Row cg_lookup_rows[];
extern "C" [[gnu::visibility("hidden")]] const Row cg_lookup_end[];

namespace cudaguard {
namespace {

// Below zero, zero or above it, as the name of the row sorts before, at or after `name`.
int compare(const Row& row, const char* name) {
  const char* own = reinterpret_cast<const char*>(cg_lookup_rows) + row.name;
  while (*own != '\0' && *own == *name) {
    ++own;
    ++name;
  }
  return static_cast<unsigned char>(*own) - static_cast<unsigned char>(*name);
}

void* entry_of(const Row& row) {
  return const_cast<char*>(reinterpret_cast<const char*>(&row.entry)) + row.entry;
}

}  // namespace

LookupAnswer find_entry(const char* name, uint32_t version, bool per_thread) {
  size_t first = 0;
  size_t end = static_cast<size_t>(cg_lookup_end - cg_lookup_rows);
  const size_t count = end;
  while (first < end) {
    const size_t middle = first + (end - first) / 2;
    if (compare(cg_lookup_rows[middle], name) < 0) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }

  bool known = false;
  const Row* plain = nullptr;
  const Row* threaded = nullptr;
  bool has_threaded = false;
  for (size_t i = first; i < count && compare(cg_lookup_rows[i], name) == 0; ++i) {
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
