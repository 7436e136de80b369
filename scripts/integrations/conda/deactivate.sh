# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Restores the variables that activate.sh has changed.
eval "_cudaguard_undo=\${_CUDAGUARD_UNDO_${CONDA_SHLVL:-0}:-}"
eval "${_cudaguard_undo:-}"
unset _cudaguard_undo "_CUDAGUARD_UNDO_${CONDA_SHLVL:-0}"
