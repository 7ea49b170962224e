# Completion of `conductor` for bash (3.2 and newer); `conductor complete` says what may stand next.

_conductor() {
    local cur before word kind
    _conductor_words
    # Of a word with colons, bash replaces what is behind the last one.
    local kept=''
    [[ $cur == "${COMP_WORDS[COMP_CWORD]}" ]] || kept=${cur%"${cur##*:}"}
    [[ $cur != '=' ]] || cur=''
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        case $word in
            :files | :directories)
                kind=-f
                [[ $word == :files ]] || kind=-d
                compopt -o filenames 2>/dev/null
                while IFS= read -r word; do
                    if [[ -n $kept && -d $word ]]; then
                        # What is left of the word is no directory, so bash would add no slash.
                        compopt -o nospace 2>/dev/null
                        word+=/
                    fi
                    COMPREPLY+=("${word#"$kept"}")
                done < <(compgen $kind -- "$cur") ;;
            *) COMPREPLY+=("${word#"$kept"}") ;;
        esac
    done < <("${1:-conductor}" complete ":$cur" ${before[@]+"${before[@]}"} 2>/dev/null)
    compopt -o nosort 2>/dev/null
}

# Set `cur` and `before`: the word at the cursor, and those between the program and it. bash makes
# several words of one with colons; here it is one again.
_conductor_words() {
    local rest=${COMP_LINE-} last='' piece i words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if ((i > 1)) && [[ $rest != [[:space:]]* && ($piece == : || $last == :) ]]; then
            words[${#words[@]}-1]+=$piece
        else
            words+=("$piece")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$piece"}
        last=$piece
    done
    cur=${words[${#words[@]}-1]}
    before=("${words[@]:1:${#words[@]}-2}")
}

complete -F _conductor conductor conductor-llm
