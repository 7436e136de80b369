# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Everything in this conda environment finds no CUDA device, while it is active. To install:
#   mkdir -p "$CONDA_PREFIX/etc/conda/activate.d" "$CONDA_PREFIX/etc/conda/deactivate.d"
#   cp activate.sh "$CONDA_PREFIX/etc/conda/activate.d/cudaguard.sh"
#   cp deactivate.sh "$CONDA_PREFIX/etc/conda/deactivate.d/cudaguard.sh"
# It takes the cudaguard that is installed in the environment, else the one on PATH. For sh, bash,
# dash, zsh, which source it; other options than --cpu in the line below as you like.
_cudaguard=cudaguard
if [ -x "${CONDA_PREFIX:-}/bin/cudaguard" ]; then _cudaguard=$CONDA_PREFIX/bin/cudaguard; fi
if _cudaguard_lines=$("$_cudaguard" run --cpu --print); then
  # What undoes it, once for each level of conda's stack: activated twice is deactivated once.
  if eval "[ -z \"\${_CUDAGUARD_UNDO_${CONDA_SHLVL:-0}+x}\" ]"; then
    _cudaguard_undo=
    for _cudaguard_name in $(printf '%s\n' "$_cudaguard_lines" | sed 's/^[a-z]* //; s/=.*//'); do
      if eval "[ -n \"\${$_cudaguard_name+x}\" ]"; then
        _cudaguard_old=$(eval "printf '%s\\n' \"\$$_cudaguard_name\"" | sed "s/'/'\\\\''/g")
        _cudaguard_undo="$_cudaguard_undo export $_cudaguard_name='$_cudaguard_old';"
      else
        _cudaguard_undo="$_cudaguard_undo unset $_cudaguard_name;"
      fi
    done
    eval "export _CUDAGUARD_UNDO_${CONDA_SHLVL:-0}=\$_cudaguard_undo"
  fi
  eval "$_cudaguard_lines"
else
  echo "cudaguard: this environment is NOT guarded" >&2
fi
unset _cudaguard _cudaguard_lines _cudaguard_undo _cudaguard_name _cudaguard_old
