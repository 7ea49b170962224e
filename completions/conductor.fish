# Completion of `conductor` for fish; `conductor complete` says what may stand next.

function __conductor_offers
    set -l words (commandline -opc)
    set -l current (commandline -ct | string unescape)
    set -l head (string match -r -- '^--[^=]*=' "$current")
    for line in (command $words[1] complete ":$current" $words[2..-1] 2>/dev/null)
        switch $line
            case ':files*'
                printf '%s\n' "$head"(__fish_complete_path (string replace -- "$head" '' "$current"))
            case ':directories*'
                printf '%s\n' "$head"(__fish_complete_directories (string replace -- "$head" '' "$current"))
            case '*'
                printf '%s\n' $line
        end
    end
end

complete -c conductor -f -k -a '(__conductor_offers)'
complete -c conductor-llm -w conductor
