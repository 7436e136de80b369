# SPDX-License-Identifier: Apache-2.0
# bash completion for cudaguard(1). Needs bash alone; behind the program's name it uses
# bash-completion's own ways, where that is loaded.
# shellcheck shell=bash

_cudaguard_words() {
  mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

# Programs on PATH, or a path.
_cudaguard_program() {
  if [[ $cur == */* ]]; then
    _cudaguard_files
  else
    _cudaguard_words -c
  fi
}

# The program's own arguments.
_cudaguard_arguments() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  else
    _cudaguard_files
  fi
}

_cudaguard_files() {
  compopt -o filenames
  _cudaguard_words -f
}

# generated: commands, options and values
_cudaguard_commands() { echo run verify report doctor system help version --help --version; }
_cudaguard_pages() { echo run verify report doctor system; }

_cudaguard_options() {
  case $1 in
    run) echo "--cpu --gpus --policy --if-healthy --children --rule --log --report --fence --observe
      --no-presets --print --strict --grace --help" ;;
    verify) echo "--allow --allow-incomplete --strict --deny --report --fence --grace --json --junit
      --html --force --help" ;;
    report) echo "--by --since --json --html --prometheus --force --help" ;;
    doctor) echo "--gpu --json --force --help" ;;
    system) echo "--root --spool --dry-run --program --args --user --group --cgroup --help" ;;
  esac
}

# Where the value of an option is: the next word, or only after a "=".
_cudaguard_place() {
  case $1 in
    --gpus | --policy | --children | --rule | --log | --report | --grace | --allow | --deny | \
      --json | --junit | --html | --by | --since | --prometheus | --root | --program | --args | \
      --user | --group | --cgroup) echo next ;;
    --if-healthy | --fence | --spool) echo equals ;;
  esac
}

_cudaguard_value() {
  case $1 in
    --policy) _cudaguard_words -W "FORCE_CPU VALIDATE CLAMP NO_CONTEXT OFF" ;;
    --children) _cudaguard_words -W "cpu gpu query contexts" ;;
    --log) _cudaguard_words -W "off error deny all" ;;
    --report) _cudaguard_files ;;
    --fence) _cudaguard_words -W "auto require devices off" ;;
    --allow) compopt -o nospace; _cudaguard_words -W "lib: module: line: program:" ;;
    --deny) _cudaguard_words -W "init nvml opencl context" ;;
    --json) _cudaguard_files ;;
    --junit) _cudaguard_files ;;
    --html) _cudaguard_files ;;
    --by) _cudaguard_words -W "exe user host job rule line" ;;
    --prometheus) _cudaguard_files ;;
    --root) _cudaguard_files ;;
    --program) _cudaguard_files ;;
  esac
}
# end

_cudaguard() {
  local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} at=2 word options place
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _cudaguard_words -W "$(_cudaguard_commands)"
    return
  fi
  if [[ $command == help ]]; then
    ((COMP_CWORD > 2)) || _cudaguard_words -W "$(_cudaguard_pages)"
    return
  fi
  if [[ $command == system ]]; then
    ((at = 3))
    if ((COMP_CWORD == 2)) && [[ $cur != -* ]]; then
      _cudaguard_words -W "enable disable status check"
      return
    fi
  fi
  options=$(_cudaguard_options "$command")
  [[ -n $options ]] || return
  # COMP_WORDS has "--log=all" as three words.
  while ((at < COMP_CWORD)); do
    word=${COMP_WORDS[at]}
    ((++at))
    if [[ $word == -- ]]; then
      options=
      break
    elif [[ $word != -* ]]; then
      ((--at))
      break
    fi
    place=$(_cudaguard_place "$word")
    if [[ -n $place && ${COMP_WORDS[at]} == = ]]; then
      ((at < COMP_CWORD)) && ((++at))
    elif [[ $place != next ]]; then
      continue
    fi
    if ((at >= COMP_CWORD)); then
      [[ $cur == = ]] && cur=
      # Nothing for --gpus: asking which there are would enter the driver.
      _cudaguard_value "$word"
      return
    fi
    ((++at))
  done
  if ((at < COMP_CWORD)); then
    [[ $command == doctor ]] || _cudaguard_arguments "$at"
  elif [[ $cur == -* && -n $options ]]; then
    _cudaguard_words -W "$options"
  elif [[ $command == report || $command == system ]]; then
    _cudaguard_files
  else
    _cudaguard_program
  fi
}

complete -F _cudaguard cudaguard
