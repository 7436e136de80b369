// SPDX-License-Identifier: Apache-2.0
#include "policy/standard_error.h"

namespace cudaguard {

namespace {

using Kind = Descriptor::Kind;

/// True for descriptors that shells, supervisors and test runners leave at 0 and 1, and that
/// programs do not open there.
bool looks_inherited(const Descriptor& d) {
  return !d.close_on_exec && (d.kind == Kind::kTerminalOrNull || d.kind == Kind::kPipe);
}

/// True for a socket that the parent may have given this process, as Node gives its children three.
bool may_be_inherited_socket(const Descriptor& d) {
  return d.kind == Kind::kSocket && !d.close_on_exec;
}

}  // namespace

bool may_write_line(const Descriptor& in, const Descriptor& out, const Descriptor& err) {
  if (!err.writable || err.close_on_exec) return false;
  switch (err.kind) {
    case Kind::kTerminalOrNull:
    case Kind::kPipe:
      return true;
    case Kind::kSocket:
    case Kind::kRegular:
      // `2>file` opens for writing only; a program's data file is often open for both.
      if (err.kind == Kind::kRegular && err.readable) return false;
      // No program inherits a standard input that cannot be read: 0 was closed, and 2 likely as
      // well.
      if (in.kind == Kind::kRegular && !in.readable) return false;
      // `>file 2>&1` or systemd's journal socket: 1 and 2 are the same file.
      if (out.kind == err.kind && out.same_file(err) && !out.close_on_exec) return true;
      if (err.kind == Kind::kSocket && may_be_inherited_socket(in) &&
          may_be_inherited_socket(out)) {
        return true;
      }
      return (looks_inherited(in) && in.readable) || (looks_inherited(out) && out.writable);
    default:
      return false;
  }
}

}  // namespace cudaguard
