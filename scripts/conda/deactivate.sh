# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The other half of activate.sh, which see: sets the variables as they were.
eval "_cudaguard_undo=\${_CUDAGUARD_UNDO_${CONDA_SHLVL:-0}:-}"
eval "${_cudaguard_undo:-}"
unset _cudaguard_undo "_CUDAGUARD_UNDO_${CONDA_SHLVL:-0}"
