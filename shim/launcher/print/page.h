// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page, made of page/page.{html,css,js}. Its script draws the JSON document
// that is in the page.
#pragma once

#include <string>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// `text` is the text report, for a reader without JavaScript. The document is that of --json, but
/// it has only the stacks of the 40 attempts that the page shows.
std::string page_of_verdict(const Verdict& verdict, const std::string& text);
/// The page of records alone. `title` is what was read: "3 files of /var/log/cudaguard".
std::string page_of_records(const Findings& findings, const std::string& title,
                            const std::string& text);

}  // namespace cudaguard::launcher
