// SPDX-License-Identifier: Apache-2.0
// Prints the rows of the commands, options, variables, policies, kinds of attempts and fields of a
// record as JSON, for scripts/generate-options and for tests (tests/support/built_rows.py).
#include <cstdio>

#include "policy/library.h"
#include "policy/policies.h"
#include "policy/variables.h"
#include "shim/launcher/options.h"
#include "shim/launcher/print/json.h"

namespace {

/// A row of shim/guard/text/record_fields.inc.
struct FieldRow {
  const char* part;
  const char* type;
  const char* name;
  const char* always;
  const char* sometimes;
  const char* rule;
  const char* text;
};

#define ROW(part, type, name, always, sometimes, rule, text) \
  {part, #type, #name, always, sometimes, rule, text},
#define RECORD_PROCESS(type, name, parts, ...) ROW("process", type, name, __VA_ARGS__)
#define RECORD_CALL(type, name, parts, ...) ROW("call", type, name, __VA_ARGS__)
#define RECORD_LAUNCHER(type, name, parts, ...) ROW("launcher", type, name, __VA_ARGS__)
constexpr FieldRow kFields[] = {
#include "shim/guard/text/record_fields.inc"
};

}  // namespace

int main() {
  using namespace cudaguard;
  using namespace cudaguard::launcher;
  Json json(2);
  json.begin_object().objects("commands", pages(), [&](const Page& page) {
    json.field("name", page.name).field("words", page.words);
    json.objects("options", options_of(page), [&](const OptionRow* option) {
      json.field("name", option->name)
          .field("value", option->value)
          .field("help", about(*option))
          .field("words", option->words)
          .field("default", option->by_default)
          .field("variable", option->sets ? row_of(*option->sets).name : "");
    });
  });
  json.objects("variables", kVariableTexts, [&](const VariableText& text) {
    json.field("name", text.name)
        .field("help", about(text.help, text.words))
        .field("words", text.words)
        .field("default", text.by_default);
  });
  json.objects("policies", kPolicies, [&](const PolicyRow& row) {
    json.field("name", name_of(row.policy))
        .field("allows", allows_cuda(row.policy))
        .field("clamps", row.clamps)
        .field("contexts", row.contexts);
  });
  json.objects("attempts", kDriverApis, [&](DriverApi api) {
    json.field("asked", word_of(api))
        .field("denied", denied_word_of(api))
        .field("name", name_of(api));
  });
  json.objects("fields", kFields, [&](const FieldRow& row) {
    json.field("part", row.part)
        .field("type", row.type)
        .field("name", row.name)
        .field("always", row.always)
        .field("sometimes", row.sometimes)
        .field("rule", row.rule)
        .field("text", row.text);
  });
  puts(json.end_object().text().c_str());
  return 0;
}
