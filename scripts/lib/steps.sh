# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# step NAME COMMAND...: runs the command even if earlier steps failed, and prints its time.
# end_steps: prints all times and their sum. The exit code is 0 if all steps passed.

steps_failed=0
steps_summary=()

step() {
  local name=$1 start=$SECONDS verdict=passed
  shift
  printf '\n######## %s\n' "$name"
  "$@" || verdict=FAILED
  [ "$verdict" = passed ] || steps_failed=$((steps_failed + 1))
  steps_summary+=("$(printf '%5d s  %s  %s' $((SECONDS - start)) "$verdict" "$name")")
  printf '######## %s: %s (%s s)\n' "$name" "$verdict" $((SECONDS - start))
}

end_steps() {
  printf '\n'
  printf '%s\n' "${steps_summary[@]}"
  printf '%5d s  in all: %d passed, %d failed\n' "$SECONDS" \
    $((${#steps_summary[@]} - steps_failed)) "$steps_failed"
  [ "$steps_failed" -eq 0 ]
}
