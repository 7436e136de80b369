# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Everything in this conda environment finds no CUDA device, while it is active. To install:
#   mkdir -p "$CONDA_PREFIX/etc/conda/activate.d" "$CONDA_PREFIX/etc/conda/deactivate.d"
#   cp activate.sh "$CONDA_PREFIX/etc/conda/activate.d/cudaguard.sh"
#   cp deactivate.sh "$CONDA_PREFIX/etc/conda/deactivate.d/cudaguard.sh"
# To uninstall: conda deactivate, then remove the two files.
# It takes the cudaguard that is installed in the environment, else the one on PATH. For sh, bash,
# dash, zsh, which source it; other options than --cpu in the two lines below as you like.
# One program without it: cudaguard run --policy OFF -- PROGRAM, which takes CUDA_VISIBLE_DEVICES=
# and the like back too. CUDAGUARD_POLICY=OFF alone does not.
_cudaguard=cudaguard
if [ -x "${CONDA_PREFIX:-}/bin/cudaguard" ]; then _cudaguard=$CONDA_PREFIX/bin/cudaguard; fi
# What the launcher refuses in these two, the guard passes over: they shall not switch it off.
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
# What undoes it, once for each level of conda's stack: activated twice is deactivated once. Words
# are not split here: IFS is the user's.
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
