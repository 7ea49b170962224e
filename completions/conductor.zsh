#compdef conductor conductor-llm
# Completion of `conductor` for zsh; `conductor complete` says what may stand next.

_conductor() {
  local line paths
  local -a described plain asked
  asked=(":${(Q)words[CURRENT]}" "${(@Q)words[2,CURRENT-1]}")
  for line in ${(f)"$(_call_program offers ${(q)words[1]} complete ${(q)asked} 2>/dev/null)"}; do
    case $line in
      (:*) paths=${line%%$'\t'*} ;;
      (*$'\t') plain+=("${line%$'\t'}") ;;
      (*) described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  (( ! $#described )) || _describe -V offers described
  (( ! $#plain )) || compadd -V names -a plain
  [[ -z $paths ]] || { compset -P '--*='; [[ $paths == :files ]] && _files || _files -/ }
}

# as a file of $fpath, or read by `source`
if [[ $funcstack[1] == _conductor ]]; then
  _conductor "$@"
else
  compdef _conductor conductor conductor-llm
fi
