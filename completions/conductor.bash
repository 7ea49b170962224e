# Completion of `conductor` for bash (3.2 and newer); `conductor complete` says what may stand next.

_conductor() {
    local cur=${COMP_WORDS[COMP_CWORD]} word kind
    local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    [[ $cur != '=' ]] || cur=''
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        case $word in
            :files | :directories)
                kind=-f
                [[ $word == :files ]] || kind=-d
                compopt -o filenames 2>/dev/null
                while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen $kind -- "$cur") ;;
            *) COMPREPLY+=("$word") ;;
        esac
    done < <("${1:-conductor}" complete ":$cur" ${before[@]+"${before[@]}"} 2>/dev/null)
    compopt -o nosort 2>/dev/null
}

complete -F _conductor conductor conductor-llm
