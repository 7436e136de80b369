// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page, made of page/page.{html,css,js}: the script draws the JSON document
// that is in the page.
#pragma once

#include <string>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/symbols.h"

namespace cudaguard::launcher {

/// `text`: the text report, for a reader without JavaScript. The document is that of --json; only
/// the stacks of the 40 attempts that the page shows are in it.
std::string page_of_verdict(const Verdict& verdict, Symbols& symbols, const std::string& text);
/// Of records alone. `title`: what was read, "3 files of /var/log/cudaguard".
std::string page_of_records(const Findings& findings, const std::string& title,
                            const std::string& text);

}  // namespace cudaguard::launcher
