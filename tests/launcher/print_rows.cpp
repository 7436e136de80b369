// SPDX-License-Identifier: Apache-2.0
// Prints the rows of the commands, options and variables as JSON, for scripts/generate-options.
#include <cstdio>

#include "policy/variables.h"
#include "shim/launcher/options.h"
#include "shim/launcher/print/json.h"

int main() {
  using namespace cudaguard;
  using namespace cudaguard::launcher;
  Json json(2);
  json.begin_object().objects("commands", pages(), [&](const Page& page) {
    json.field("name", page.name).field("words", page.words).field("about", page.about);
    json.objects("options", options_of(page), [&](const OptionRow* option) {
      json.field("name", option->name)
          .field("value", option->value)
          .field("help", about(*option))
          .field("words", option->words)
          .field("default", option->by_default);
    });
  });
  json.objects("variables", kVariableTexts, [&](const VariableText& text) {
    json.field("name", text.name)
        .field("help", about(text.help, text.words))
        .field("instead", text.instead)
        .field("default", text.by_default);
  });
  puts(json.end_object().text().c_str());
  return 0;
}
