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
    compopt -o filenames
    _cudaguard_words -f
  else
    _cudaguard_words -c
  fi
}

# The program's own arguments.
_cudaguard_arguments() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  else
    compopt -o filenames
    _cudaguard_words -f
  fi
}

_cudaguard_value() {
  case $1 in
    --policy) _cudaguard_words -W "FORCE_CPU VALIDATE CLAMP OFF" ;;
    --children) _cudaguard_words -W cpu ;;
    --log) _cudaguard_words -W "off error deny all" ;;
    --deny) _cudaguard_words -W "init nvml opencl" ;;
    --fence) _cudaguard_words -W "auto require off" ;;
    --allow)
      compopt -o nospace
      _cudaguard_words -W "lib: module: line:"
      ;;
    --by) _cudaguard_words -W "exe user host job line" ;;
    --report | --json | --junit | --html)
      compopt -o filenames
      _cudaguard_words -f
      ;;
    *) ;; # --gpus: asking which there are would enter the driver
  esac
}

_cudaguard() {
  local cur=${COMP_WORDS[COMP_CWORD]} at=2 word options
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _cudaguard_words -W "run verify report doctor help version --help --version"
    return
  fi
  case ${COMP_WORDS[1]} in
    run) options="--cpu --gpus --policy --if-healthy --children --log --report --fence --observe
      --no-presets --print --strict --help" ;;
    verify) options="--allow --allow-incomplete --deny --fence --trace --report --json --junit
      --html --force --help" ;;
    report) options="--by --json --html --force --help" ;;
    doctor) options="--gpu --json --force --help" ;;
    help)
      ((COMP_CWORD > 2)) || _cudaguard_words -W "run verify report doctor"
      return
      ;;
    *) return ;;
  esac
  # COMP_WORDS has "--log=all" as three words.
  while ((at < COMP_CWORD)); do
    word=${COMP_WORDS[at]}
    case $word in
      --gpus | --policy | --children | --log | --report | --allow | --deny | --junit | --html | --by \
        | --json)
        ((++at))
        [[ ${COMP_WORDS[at]} == = ]] && ((at < COMP_CWORD)) && ((++at))
        if ((at >= COMP_CWORD)); then
          [[ $cur == = ]] && cur=
          _cudaguard_value "$word"
          return
        fi
        ((++at))
        ;;
      --fence) # its word comes behind a "=" or not at all
        ((++at))
        [[ ${COMP_WORDS[at]} == = ]] || continue
        ((++at))
        if ((at >= COMP_CWORD)); then
          [[ $cur == = ]] && cur=
          _cudaguard_value "$word"
          return
        fi
        ((++at))
        ;;
      --)
        ((++at))
        options=
        break
        ;;
      -*) ((++at)) ;;
      *) break ;;
    esac
  done
  if ((at < COMP_CWORD)); then
    [[ ${COMP_WORDS[1]} == doctor ]] || _cudaguard_arguments "$at"
  elif [[ $cur == -* && -n $options ]]; then
    _cudaguard_words -W "$options"
  elif [[ ${COMP_WORDS[1]} == report ]]; then
    compopt -o filenames
    _cudaguard_words -f
  else
    _cudaguard_program
  fi
}

complete -F _cudaguard cudaguard
