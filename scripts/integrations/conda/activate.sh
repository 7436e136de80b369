# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Programs in this conda environment find no CUDA device while it is active. To install:
#   mkdir -p "$CONDA_PREFIX/etc/conda/activate.d" "$CONDA_PREFIX/etc/conda/deactivate.d"
#   cp activate.sh "$CONDA_PREFIX/etc/conda/activate.d/cudaguard.sh"
#   cp deactivate.sh "$CONDA_PREFIX/etc/conda/deactivate.d/cudaguard.sh"
# To uninstall, run conda deactivate, then remove the two files.
# The script uses the cudaguard of the environment; if there is none, the one on PATH. sh, bash,
# dash and zsh can source it. To guard with other options, replace --cpu in the two lines below.
# To allow CUDA for one program: cudaguard run --policy OFF -- PROGRAM. CUDAGUARD_POLICY=OFF alone
# would leave CUDA_VISIBLE_DEVICES=, which hides the GPUs.
_cudaguard=cudaguard
if [ -x "${CONDA_PREFIX:-}/bin/cudaguard" ]; then _cudaguard=$CONDA_PREFIX/bin/cudaguard; fi
# The launcher refuses bad values of these two variables, which the guard ignores. They must not
# switch the guard off.
if _cudaguard_lines=$("$_cudaguard" run --cpu --print) ||
  { [ -n "${CUDAGUARD_LOG:-}${CUDAGUARD_REPORT:-}" ] && _cudaguard_lines=$(
    unset CUDAGUARD_LOG CUDAGUARD_REPORT
    "$_cudaguard" run --cpu --print
  ); }; then
  :
else
  echo "cudaguard: this environment is NOT guarded; CUDA_VISIBLE_DEVICES= hides the GPUs from" \
    "programs that heed it" >&2
  _cudaguard_lines='export CUDA_VISIBLE_DEVICES='
fi
# The commands that undo this, saved once for each level of conda's stack: an environment that is
# activated twice is deactivated once. Words are not split here, because IFS is the user's.
if eval "[ -z \"\${_CUDAGUARD_UNDO_${CONDA_SHLVL:-0}+x}\" ]"; then
  _cudaguard_undo=$(printf '%s\n' "$_cudaguard_lines" | while IFS= read -r line; do
    case $line in "export "*=* | "unset "*) ;; *) continue ;; esac
    name=${line#* }
    name=${name%%=*}
    if eval "[ -n \"\${$name+x}\" ]"; then
      old=$(eval "printf '%s\\n' \"\$$name\"" | sed "s/'/'\\\\''/g")
      printf '%s' " export $name='$old';"
    else
      printf '%s' " unset $name;"
    fi
  done)
  eval "export _CUDAGUARD_UNDO_${CONDA_SHLVL:-0}=\$_cudaguard_undo"
fi
eval "$_cudaguard_lines"
unset _cudaguard _cudaguard_lines _cudaguard_undo
