// SPDX-License-Identifier: Apache-2.0
//
// A table of error codes made from one of the generated lists: define CG_ERROR_LIST to its file
// name, then include this. All texts lie in one object and rows hold offsets into it: a table of
// pointers would have to be relocated in every process that loads the stand-in.
#ifndef CG_ERROR_LIST
#error "define CG_ERROR_LIST"
#endif

#include <cstddef>
#include <cstdint>

namespace cudaguard {
namespace {

struct ErrorTexts {
#define CG_ERROR(code, name, text) \
  char name_##code[sizeof(#name)]; \
  char text_##code[sizeof(text)];
#include CG_ERROR_LIST
#undef CG_ERROR
};

constexpr ErrorTexts kErrorTexts = {
#define CG_ERROR(code, name, text) #name, text,
#include CG_ERROR_LIST
#undef CG_ERROR
};

struct ErrorRow {
  int32_t code;
  uint16_t name;
  uint16_t text;
};

constexpr ErrorRow kErrorRows[] = {
#define CG_ERROR(code, name, text) \
  {code, offsetof(ErrorTexts, name_##code), offsetof(ErrorTexts, text_##code)},
#include CG_ERROR_LIST
#undef CG_ERROR
};
static_assert(sizeof(ErrorTexts) < 65536, "offsets of 16 bits");

// The row of a code, or null for a code that nobody knows.
const ErrorRow* find_error(int code) {
  for (const ErrorRow& row : kErrorRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

const char* error_string(uint16_t offset) {
  return reinterpret_cast<const char*>(&kErrorTexts) + offset;
}

}  // namespace
}  // namespace cudaguard
