#compdef conductor conductor-llm
# Completion of `conductor` for zsh. Generated from the commands: see CONTRIBUTING.md.

# The names that a command of the program prints, in its order, and more words: with files, or parted by commas.
_conductor_values() {
  local -a expl conductor_values
  local ret=1
  [[ $2 != list ]] || compset -P '*,'
  conductor_values=(${@[3,-1]})
  [[ -z $1 ]] || conductor_values+=(${(f)"$(_call_program names $service $1 2>/dev/null)"})
  (( $#conductor_values )) && _wanted -V values expl value compadd -a conductor_values && ret=0
  [[ $2 != files ]] || { _files && ret=0 }
  return ret
}

_conductor() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(--config)'--config='[Settings file to use instead of config.toml.]:FILE:_files' \
    '(--color)'--color='[Colour: auto, always or never.]:auto|always|never:(auto always never)' \
    '(--debug)'--debug'[Log what happens inside to stderr; show tracebacks.]' \
    '(-q --quiet)'{-q,--quiet}'[Nothing on stderr but errors.]' \
    '(--version)'--version'[Show the version.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((ask\:Ask\ a\ question\:\ plan\ it,\ run\ the\ plan\ over\ the\ workers,\ print\ the\ answer chat\:Talk\:\ one\ question\ after\ the\ other,\ each\ knows\ the\ ones\ before plan\:Plan\ a\ question\:\ print\ the\ plan\ and\ its\ estimate,\ or\ into\ a\ file\ or\ pipe\ the\ plan\ for\ conductor\ run run\:Run\ a\ plan\ from\ a\ file\ or\ a\ pipe,\ as\ conductor\ plan\ wrote\ it\ or\ edited eval\:Put\ the\ same\ cases\ to\ every\ way\ of\ using\ the\ workers,\ and\ compare\ what\ was\ right\ and\ what\ it\ took train\:Train\ a\ conductor\ by\ reward\:\ sample\ plans,\ run\ them\ over\ your\ workers,\ and\ keep\ what\ answers\ well setup\:Set\ up\ what\ is\ missing,\ step\ by\ step\:\ keys,\ workers,\ limits,\ the\ conductor\ model cost\:Show\ what\ was\ spent\:\ by\ day,\ provider\ and\ worker,\ beside\ the\ limits\ of\ a\ day doctor\:Check\ everything\:\ the\ conductor\ plans\ a\ question,\ each\ worker\ says\ a\ word,\ which\ costs\ next\ to\ nothing completions\:Print\ the\ completion\ script\ of\ a\ shell,\ as\ in\:\ source\ \<\(conductor\ completions\ bash\) trace\:Stored\ runs\:\ list,\ search,\ show,\ replay,\ compare,\ run\ again,\ export,\ remove workers\:The\ models\ that\ do\ subtasks pools\:Named\ sets\ of\ workers,\ one\ of\ which\ a\ run\ may\ choose\ from keys\:Keys\ of\ providers\:\ where\ they\ are,\ and\ whether\ they\ are\ good model\:The\ conductor\ model\:\ the\ one\ that\ plans config\:Settings\:\ where\ they\ come\ from\ and\ what\ they\ are))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    ask) _conductor_ask ;;
    chat) _conductor_chat ;;
    plan) _conductor_plan ;;
    run) _conductor_run ;;
    eval) _conductor_eval ;;
    train) _conductor_train ;;
    setup) _conductor_setup ;;
    cost) _conductor_cost ;;
    doctor) _conductor_doctor ;;
    completions) _conductor_completions ;;
    trace) _conductor_trace ;;
    workers) _conductor_workers ;;
    pools) _conductor_pools ;;
    keys) _conductor_keys ;;
    model) _conductor_model ;;
    config) _conductor_config ;;
  esac
}

_conductor_ask() {
  _arguments -s -S \
    '*'{-f+,--file=}'[Attach a text file; may be repeated.]:PATH:_files' \
    '(--system)'--system='[System text for every worker.]:TEXT: ' \
    '(-c --continue)'{-c+,--continue=}'[Continue the last run, or run ID, as a conversation.]::[ID]: _conductor_values "trace names" none' \
    '(--resume)'--resume='[Finish a run that was stopped; only what is missing is called.]:ID: _conductor_values "trace names" none' \
    '(--mode)'--mode='[mini: one worker; auto: up to five steps; ultra: reason first, review after.]:mini|auto|ultra:(mini auto ultra)' \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--pool)'--pool='[Use only the workers of this pool; '\'''\'' for all of them.]:NAME: _conductor_values "pools names" none' \
    '(--conductor)'--conductor='[The model that plans: a GGUF file, a URL, or provider/model.]:NAME|PATH|URL: _conductor_values "model names --here" files' \
    '(--allow)'--allow='[Ask only these: worker names, tag:NAME, provider:NAME.]:A,B: _conductor_values "workers names" list' \
    '(--deny)'--deny='[Never ask these; named as for --allow.]:A,B: _conductor_values "workers names" list' \
    '(--local-only)'--local-only'[Let nothing leave this machine: neither workers nor the conductor.]' \
    '(--max-steps)'--max-steps='[Most steps of the plan, 1 to 5.]:N: ' \
    '(--recursion)'--recursion='[Reviews by the conductor itself behind the plan.]:N: ' \
    '(--max-cost)'--max-cost='[Most US dollars for the run.]:USD: ' \
    '(--max-tokens)'--max-tokens='[Most tokens for the run, in and out.]:N: ' \
    '(--max-calls)'--max-calls='[Most worker calls for the run.]:N: ' \
    '(--max-time)'--max-time='[Most seconds for the run.]:S: ' \
    '(--schema)'--schema='[JSON Schema for the answer; one that is no JSON exits 7.]:FILE:_files' \
    '(--seed)'--seed='[Seed for whatever is drawn.]:N: ' \
    '(--gpu-layers)'--gpu-layers='[Layers of a local model on the GPU.]:auto|all|N:(auto all)' \
    '(--adapter)'--adapter='[A LoRA adapter (GGUF) laid over a local conductor.]:FILE:_files' \
    '(--approve --yes)'{--approve,--yes}'[Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.]' \
    '(--format)'--format='[What goes to stdout: the answer, one JSON object, or the events.]:answer|json|jsonl:(answer json jsonl)' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--brief)'--brief'[A step that has ended is one line.]' \
    '(--rehearsal)'--rehearsal'[Use the tiny models that ship with this tool: no key, no download.]' \
    '(--no-trace)'--no-trace'[Store no trace of this run.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:QUESTION: '
}

_conductor_chat() {
  _arguments -s -S \
    '*'{-f+,--file=}'[Attach a text file; may be repeated.]:PATH:_files' \
    '(--system)'--system='[System text for every worker.]:TEXT: ' \
    '(-c --continue)'{-c+,--continue=}'[Go on with the conversation of the last run, or of run ID.]::[ID]: _conductor_values "trace names" none' \
    '(--mode)'--mode='[mini: one worker; auto: up to five steps; ultra: reason first, review after.]:mini|auto|ultra:(mini auto ultra)' \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--pool)'--pool='[Use only the workers of this pool; '\'''\'' for all of them.]:NAME: _conductor_values "pools names" none' \
    '(--conductor)'--conductor='[The model that plans: a GGUF file, a URL, or provider/model.]:NAME|PATH|URL: _conductor_values "model names --here" files' \
    '(--allow)'--allow='[Ask only these: worker names, tag:NAME, provider:NAME.]:A,B: _conductor_values "workers names" list' \
    '(--deny)'--deny='[Never ask these; named as for --allow.]:A,B: _conductor_values "workers names" list' \
    '(--local-only)'--local-only'[Let nothing leave this machine: neither workers nor the conductor.]' \
    '(--max-steps)'--max-steps='[Most steps of the plan, 1 to 5.]:N: ' \
    '(--recursion)'--recursion='[Reviews by the conductor itself behind the plan.]:N: ' \
    '(--max-cost)'--max-cost='[Most US dollars for the run.]:USD: ' \
    '(--max-tokens)'--max-tokens='[Most tokens for the run, in and out.]:N: ' \
    '(--max-calls)'--max-calls='[Most worker calls for the run.]:N: ' \
    '(--max-time)'--max-time='[Most seconds for the run.]:S: ' \
    '(--seed)'--seed='[Seed for whatever is drawn.]:N: ' \
    '(--gpu-layers)'--gpu-layers='[Layers of a local model on the GPU.]:auto|all|N:(auto all)' \
    '(--adapter)'--adapter='[A LoRA adapter (GGUF) laid over a local conductor.]:FILE:_files' \
    '(--approve --yes)'{--approve,--yes}'[Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.]' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--brief)'--brief'[A step that has ended is one line.]' \
    '(--rehearsal)'--rehearsal'[Use the tiny models that ship with this tool: no key, no download.]' \
    '(--no-trace)'--no-trace'[Store no trace of this run.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_plan() {
  _arguments -s -S \
    '*'{-f+,--file=}'[Attach a text file; may be repeated.]:PATH:_files' \
    '(--system)'--system='[System text for every worker.]:TEXT: ' \
    '(--mode)'--mode='[mini: one worker; auto: up to five steps; ultra: reason first, review after.]:mini|auto|ultra:(mini auto ultra)' \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--pool)'--pool='[Use only the workers of this pool; '\'''\'' for all of them.]:NAME: _conductor_values "pools names" none' \
    '(--conductor)'--conductor='[The model that plans: a GGUF file, a URL, or provider/model.]:NAME|PATH|URL: _conductor_values "model names --here" files' \
    '(--allow)'--allow='[Ask only these: worker names, tag:NAME, provider:NAME.]:A,B: _conductor_values "workers names" list' \
    '(--deny)'--deny='[Never ask these; named as for --allow.]:A,B: _conductor_values "workers names" list' \
    '(--local-only)'--local-only'[Let nothing leave this machine: neither workers nor the conductor.]' \
    '(--max-steps)'--max-steps='[Most steps of the plan, 1 to 5.]:N: ' \
    '(--seed)'--seed='[Seed for whatever is drawn.]:N: ' \
    '(--gpu-layers)'--gpu-layers='[Layers of a local model on the GPU.]:auto|all|N:(auto all)' \
    '(--adapter)'--adapter='[A LoRA adapter (GGUF) laid over a local conductor.]:FILE:_files' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--flow)'--flow'[Show who reads what: question, files, whose answers.]' \
    '(--rehearsal)'--rehearsal'[Use the tiny models that ship with this tool: no key, no download.]' \
    '(--no-trace)'--no-trace'[Store no trace of this run.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:QUESTION: '
}

_conductor_run() {
  _arguments -s -S \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--pool)'--pool='[Use only the workers of this pool; '\'''\'' for all of them.]:NAME: _conductor_values "pools names" none' \
    '(--conductor)'--conductor='[The model that plans: a GGUF file, a URL, or provider/model.]:NAME|PATH|URL: _conductor_values "model names --here" files' \
    '(--allow)'--allow='[Ask only these: worker names, tag:NAME, provider:NAME.]:A,B: _conductor_values "workers names" list' \
    '(--deny)'--deny='[Never ask these; named as for --allow.]:A,B: _conductor_values "workers names" list' \
    '(--local-only)'--local-only'[Let nothing leave this machine: neither workers nor the conductor.]' \
    '(--recursion)'--recursion='[Reviews by the conductor itself behind the plan.]:N: ' \
    '(--max-cost)'--max-cost='[Most US dollars for the run.]:USD: ' \
    '(--max-tokens)'--max-tokens='[Most tokens for the run, in and out.]:N: ' \
    '(--max-calls)'--max-calls='[Most worker calls for the run.]:N: ' \
    '(--max-time)'--max-time='[Most seconds for the run.]:S: ' \
    '(--seed)'--seed='[Seed for whatever is drawn.]:N: ' \
    '(--gpu-layers)'--gpu-layers='[Layers of a local model on the GPU.]:auto|all|N:(auto all)' \
    '(--approve --yes)'{--approve,--yes}'[Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.]' \
    '(--format)'--format='[What goes to stdout: the answer, one JSON object, or the events.]:answer|json|jsonl:(answer json jsonl)' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--brief)'--brief'[A step that has ended is one line.]' \
    '(--rehearsal)'--rehearsal'[Use the tiny models that ship with this tool: no key, no download.]' \
    '(--no-trace)'--no-trace'[Store no trace of this run.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::PLAN.json|-:_files'
}

_conductor_eval() {
  _arguments -s -S \
    '(--systems)'--systems='[Which ways to use the workers; all is every one.]:all|A,B: _conductor_values "" list all alone best-worker random keyword reflection vote moa pipeline best-routing conductor-mini conductor conductor-ultra conductor-recursion' \
    '(--n)'--n='[How many cases: 500 of the rehearsal, 60 of basics, all of a file.]:N: ' \
    '(--seed)'--seed='[Draws the cases, and all else that is drawn.]:N: ' \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--pool)'--pool='[Use only the workers of this pool; '\'''\'' for all of them.]:NAME: _conductor_values "pools names" none' \
    '(--conductor)'--conductor='[The model that plans: a GGUF file, a URL, or provider/model.]:NAME|PATH|URL: _conductor_values "model names --here" files' \
    '(--allow)'--allow='[Ask only these: worker names, tag:NAME, provider:NAME.]:A,B: _conductor_values "workers names" list' \
    '(--deny)'--deny='[Never ask these; named as for --allow.]:A,B: _conductor_values "workers names" list' \
    '(--local-only)'--local-only'[Let nothing leave this machine: neither workers nor the conductor.]' \
    '(--from)'--from='[The file is math500, mmlu, aime25 or gpqa-diamond.]:SET:(math500 aime25 mmlu gpqa-diamond)' \
    '(--parallel)'--parallel='[Runs at once.]:N: ' \
    '(--resume)'--resume='[Go on with one; what failed is asked again.]:ID|last:(last)' \
    '(--rescore)'--rescore='[Score its stored answers again, without a call.]:ID|last:(last)' \
    '(--scorer)'--scorer='[With --rescore: for all cases, another than their own.]:NAME:(exact number choice math)' \
    '(--html)'--html='[Write a report with plots, too.]:FILE:_files' \
    '(--json)'--json'[Write JSON.]' \
    '(-y --yes)'{-y,--yes}'[Begin without a question, though it may cost money.]' \
    '(--max-cost)'--max-cost='[Stop when the runs have cost so much in all.]:USD: ' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--list)'--list'[List the evaluations that are kept.]' \
    '(--print-cases)'--print-cases'[Write the cases as JSON Lines, and ask nobody.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::rehearsal|basics|CASES.jsonl: _conductor_values "" files rehearsal basics'
}

_conductor_train() {
  _arguments -s -S \
    '(--preset)'--preset='[The course: the rehearsal'\''s own, in minutes on a CPU; or the published recipe.]:rehearsal|paper:(rehearsal paper)' \
    '(--cases)'--cases='[What to practise on, as eval takes it.]:basics|CASES.jsonl: _conductor_values "" files basics' \
    '(--from)'--from='[The file is math500, mmlu, aime25 or gpqa-diamond.]:SET:(math500 aime25 mmlu gpqa-diamond)' \
    '(--base)'--base='[The base model, in Hugging Face'\''s form; not fetched.]:DIR|ID:_files -/' \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--profile)'--profile='[How it is spoken to: workers by name and card, or by number alone.]:prompted|published:(prompted published)' \
    '(--lora --full)'{--lora,--full}'[Train an adapter of low rank, or all weights.]' \
    '(--steps)'--steps='[Steps of training.]:N: ' \
    '(--prompts)'--prompts='[Cases of a step.]:N: ' \
    '(--group)'--group='[Plans sampled for each case.]:N: ' \
    '(--seed)'--seed='[Draws cases, pools and plans.]:N: ' \
    '(--out)'--out='[Checkpoints, answers and curve; a training goes on there.]:DIR:_files' \
    '(--max-cost)'--max-cost='[Stop when the workers have cost so much in all.]:USD: ' \
    '(--cost-weight)'--cost-weight='[What the dearest right plan pays; 0 none.]:W: ' \
    '(--vllm)'--vllm='[What samples plans: see docs/train.md.]:off|colocate|URL:(off colocate)' \
    '(--minutes)'--minutes='[End this stage then; exit 3 if more is left.]:M: ' \
    '(--threads)'--threads='[Threads of torch for the rehearsal.]:N: ' \
    '(--export)'--export'[At the end write GGUF, which conductor model use takes.]' \
    '(--merged)'--merged'[With --export and --lora: a whole model, not an adapter.]' \
    '(--dry-run)'--dry-run'[Check model, pool, cases, memory and cost; train nothing.]' \
    '(-y --yes)'{-y,--yes}'[Begin without a question, though it may cost money.]' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_setup() {
  _arguments -s -S \
    '(-y --yes)'{-y,--yes}'[Do all that is proposed, without asking.]' \
    '(--model)'--model='[The conductor model: a name of model list, a file, a URL, provider/model, or none.]:NAME: _conductor_values "model names --known" none' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_cost() {
  _arguments -s -S \
    '(--days)'--days='[How many days, today last.]:N: ' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_doctor() {
  _arguments -s -S \
    '(--offline)'--offline'[Call no model and no server: only look at this machine.]' \
    '(--rehearsal)'--rehearsal'[Prove it with the tiny models that ship with this tool: no key, no network.]' \
    '(--bundle)'--bundle='[Write a zip for a bug report; no key is in it.]:FILE:_files' \
    '(--with-trace)'--with-trace='[Put this run into the bundle, question and answers too.]:RUN: _conductor_values "trace names" none' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_completions() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:bash|zsh|fish|powershell:(bash zsh fish powershell)'
}

_conductor_trace() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((list\:List\ stored\ runs,\ newest\ first search\:Search\ the\ questions,\ subtasks\ and\ answers\ of\ stored\ runs show\:Show\ a\ stored\ run\:\ question,\ plan,\ who\ did\ what,\ answer,\ usage\;\ or\ who\ read\ what\ of\ it replay\:Show\ a\ stored\ run\ again\ as\ it\ happened diff\:Compare\ two\ stored\ runs\:\ question,\ plan,\ steps,\ answers\ and\ what\ they\ took,\ side\ by\ side rerun\:Run\ a\ stored\ plan\ again\ from\ step\ N\ on,\ as\ a\ new\ run\;\ earlier\ steps\ are\ taken\ from\ the\ trace\ and\ not\ called export\:Export\ a\ stored\ run\:\ a\ page\ with\ a\ timeline\ that\ needs\ nothing\ else,\ Markdown,\ or\ JSON prune\:Delete\ old\ runs path\:Print\ where\ traces\ are,\ or\ the\ file\ of\ one\ run rm\:Delete\ stored\ runs))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    list) _conductor_trace_list ;;
    search) _conductor_trace_search ;;
    show) _conductor_trace_show ;;
    replay) _conductor_trace_replay ;;
    diff) _conductor_trace_diff ;;
    rerun) _conductor_trace_rerun ;;
    export) _conductor_trace_export ;;
    prune) _conductor_trace_prune ;;
    path) _conductor_trace_path ;;
    rm) _conductor_trace_rm ;;
  esac
}

_conductor_trace_list() {
  _arguments -s -S \
    '(-n --count)'{-n+,--count=}'[How many, newest first.]:N: ' \
    '*'--state='[Only runs in this state; may be repeated.]:finished|partial|failed|running|interrupted|unreadable:(finished partial failed running interrupted unreadable)' \
    '(--worker)'--worker='[Only runs that this worker worked in.]:NAME: _conductor_values "workers names" none' \
    '(--mode)'--mode='[Only runs of this mode.]:mini|auto|ultra:(mini auto ultra)' \
    '(--since)'--since='[Only runs begun since: 30min, 12h, 7d, 2w or a day, 2026-11-20.]:TIME: ' \
    '*'--text='[Only runs that hold this text; may be repeated.]:TEXT: ' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_trace_search() {
  _arguments -s -S \
    '(-n --count)'{-n+,--count=}'[How many, newest first.]:N: ' \
    '*'--state='[Only runs in this state; may be repeated.]:finished|partial|failed|running|interrupted|unreadable:(finished partial failed running interrupted unreadable)' \
    '(--worker)'--worker='[Only runs that this worker worked in.]:NAME: _conductor_values "workers names" none' \
    '(--mode)'--mode='[Only runs of this mode.]:mini|auto|ultra:(mini auto ultra)' \
    '(--since)'--since='[Only runs begun since: 30min, 12h, 7d, 2w or a day, 2026-11-20.]:TIME: ' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:TEXT: '
}

_conductor_trace_show() {
  _arguments -s -S \
    '(--step)'--step='[The whole prompt and answer of one step.]:N: ' \
    '(--prompts)'--prompts'[With what each worker was sent.]' \
    '(--flow)'--flow'[Show who reads what: question, files, whose answers.]' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::RUN: _conductor_values "trace names" none'
}

_conductor_trace_replay() {
  _arguments -s -S \
    '(--speed)'--speed='[4 is four times as fast; 0 shows it at once.]:NUMBER: ' \
    '(--step)'--step'[Go on by key: space shows the next event, q the rest.]' \
    '(--format)'--format='[What goes to stdout: the answer, one JSON object, or the events.]:answer|json|jsonl:(answer json jsonl)' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::RUN: _conductor_values "trace names" none'
}

_conductor_trace_diff() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:RUN: _conductor_values "trace names" none' \
    '2:OTHER: _conductor_values "trace names" none'
}

_conductor_trace_rerun() {
  _arguments -s -S \
    '(--from)'--from='[The first step that is done again.]:N: ' \
    '(--worker)'--worker='[Who does that step now, instead of who did it.]:NAME: _conductor_values "workers names" none' \
    '(--conductor)'--conductor='[The model that plans: a GGUF file, a URL, or provider/model.]:NAME|PATH|URL: _conductor_values "model names --here" files' \
    '(--allow)'--allow='[Ask only these: worker names, tag:NAME, provider:NAME.]:A,B: _conductor_values "workers names" list' \
    '(--deny)'--deny='[Never ask these; named as for --allow.]:A,B: _conductor_values "workers names" list' \
    '(--local-only)'--local-only'[Let nothing leave this machine: neither workers nor the conductor.]' \
    '(--max-cost)'--max-cost='[Most US dollars for the run.]:USD: ' \
    '(--max-tokens)'--max-tokens='[Most tokens for the run, in and out.]:N: ' \
    '(--max-calls)'--max-calls='[Most worker calls for the run.]:N: ' \
    '(--max-time)'--max-time='[Most seconds for the run.]:S: ' \
    '(--seed)'--seed='[Seed for whatever is drawn.]:N: ' \
    '(--gpu-layers)'--gpu-layers='[Layers of a local model on the GPU.]:auto|all|N:(auto all)' \
    '(--approve --yes)'{--approve,--yes}'[Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.]' \
    '(--format)'--format='[What goes to stdout: the answer, one JSON object, or the events.]:answer|json|jsonl:(answer json jsonl)' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--brief)'--brief'[A step that has ended is one line.]' \
    '(--no-trace)'--no-trace'[Store no trace of this run.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::RUN: _conductor_values "trace names" none'
}

_conductor_trace_export() {
  _arguments -s -S \
    '(--format)'--format='[What it becomes; without it as FILE is called, or html.]:html|markdown|json:(html markdown json)' \
    '(--out)'--out='[Write there instead of to stdout.]:FILE:_files' \
    '(--html)'--html='[Write a page there.]:FILE:_files' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::RUN: _conductor_values "trace names" none'
}

_conductor_trace_prune() {
  _arguments -s -S \
    '(--older-than)'--older-than='[Runs begun longer ago: 12h, 30d, 8w.]:TIME: ' \
    '(--keep)'--keep='[Keep the newest N, however old they are.]:N: ' \
    '(--dry-run)'--dry-run'[Only say what would be deleted.]' \
    '(-y --yes)'{-y,--yes}'[Do not ask.]' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_trace_path() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::RUN: _conductor_values "trace names" none'
}

_conductor_trace_rm() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:RUN: _conductor_values "trace names" none'
}

_conductor_workers() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((list\:List\ the\ workers\ of\ the\ settings,\ or\ those\ found\ at\ hand\ where\ none\ are\ named show\:Show\ a\ worker\:\ its\ model\ and\ settings,\ who\ reads\ what\ it\ is\ sent,\ its\ price,\ key,\ and\ what\ it\ is\ good\ at add\:Add\ a\ worker,\ or\ change\ one\ that\ was\ added rm\:Remove\ workers\ that\ were\ added\;\ pools\ lose\ them\ too enable\:Let\ workers\ be\ used\ again disable\:Keep\ workers,\ but\ do\ not\ use\ them test\:Ask\ each\ worker\ for\ a\ token,\ all\ at\ once,\ with\ its\ own\ settings\;\ a\ cheap\ live\ call\ each calibrate\:Measure\ what\ each\ worker\ is\ good\ at,\ and\ keep\ it\ as\ the\ card\ that\ the\ conductor\ and\ routers\ go\ by))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    list) _conductor_workers_list ;;
    show) _conductor_workers_show ;;
    add) _conductor_workers_add ;;
    rm) _conductor_workers_rm ;;
    enable) _conductor_workers_enable ;;
    disable) _conductor_workers_disable ;;
    test) _conductor_workers_test ;;
    calibrate) _conductor_workers_calibrate ;;
  esac
}

_conductor_workers_list() {
  _arguments -s -S \
    '(--prices)'--prices'[What each costs, and where that is known from.]' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_workers_show() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME: _conductor_values "workers names" none'
}

_conductor_workers_add() {
  _arguments -s -S \
    '(-k --kind)'{-k+,--kind=}'[openai, anthropic, gemini, ollama, llama, openai-compatible …]:KIND:(openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible litellm llama)' \
    '(-m --model)'{-m+,--model=}'[The provider'\''s model id, or a GGUF file.]:MODEL: ' \
    '(--about)'--about='[What it is good at, for the conductor.]:ABOUT: ' \
    '(--base-url)'--base-url='[Another address than the provider'\''s own.]:URL: ' \
    '(--key-env)'--key-env='[The variable that holds its key.]:NAME: ' \
    '(--context)'--context='[Tokens it can read and write.]:N: ' \
    '(--max-tokens)'--max-tokens='[Most tokens of one answer.]:N: ' \
    '(--temperature)'--temperature='[]:T: ' \
    '(--top-p)'--top-p='[Share of the likeliest tokens to draw from.]:P: ' \
    '(--reasoning-effort)'--reasoning-effort='[How hard it thinks: none, low, high …]:WORD:(none minimal low medium high xhigh max default)' \
    '(--thinking-budget)'--thinking-budget='[Tokens it may think; 0 for none.]:N: ' \
    '(--parallel)'--parallel='[Steps it may do at once.]:N: ' \
    '(--price)'--price='[US dollars for a million tokens in and out.]:IN,OUT: ' \
    '*'--tag='[A word to sort it by; may be repeated.]:WORD: ' \
    '*'--unset='[Take a setting out; may be repeated.]:SETTING: ' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME: '
}

_conductor_workers_rm() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:NAME: _conductor_values "workers names --own" none'
}

_conductor_workers_enable() {
  _arguments -s -S \
    '(--pool)'--pool='[Every worker of this pool.]:NAME: _conductor_values "pools names" none' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:NAME: _conductor_values "workers names --own" none'
}

_conductor_workers_disable() {
  _arguments -s -S \
    '(--pool)'--pool='[Every worker of this pool.]:NAME: _conductor_values "pools names" none' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:NAME: _conductor_values "workers names --own" none'
}

_conductor_workers_test() {
  _arguments -s -S \
    '(--pool)'--pool='[Every worker of this pool.]:NAME: _conductor_values "pools names" none' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:NAME: _conductor_values "workers names" none'
}

_conductor_workers_calibrate() {
  _arguments -s -S \
    '(--rehearsal)'--rehearsal'[Measure the rehearsal'\''s workers, not yours.]' \
    '(--workers)'--workers='[Use only these workers.]:A,B: _conductor_values "workers names" list' \
    '(--pool)'--pool='[Use only the workers of this pool; '\'''\'' for all of them.]:NAME: _conductor_values "pools names" none' \
    '(--n)'--n='[How many cases.]:N: ' \
    '(--seed)'--seed='[Draws the cases.]:N: ' \
    '(--parallel)'--parallel='[Runs at once.]:N: ' \
    '(--again)'--again'[Measure anew what was measured on this set.]' \
    '(--out)'--out='[Write the cards there instead.]:FILE:_files' \
    '(-y --yes)'{-y,--yes}'[Begin without a question, though it may cost money.]' \
    '(--progress)'--progress='[What goes to stderr meanwhile.]:auto|tree|plain|none:(auto tree plain none)' \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::CASES.jsonl:_files'
}

_conductor_pools() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((list\:List\ the\ pools,\ and\ those\ that\ ship\ with\ this\ tool show\:Show\ who\ is\ in\ a\ pool\;\ one\ that\ ships,\ with\ its\ sources add\:Make\ a\ pool\ of\ workers,\ or\ add\ one\ that\ ships\ \(published\) rm\:Remove\ a\ pool\ that\ was\ added\;\ its\ workers\ stay use\:Choose\ the\ pool\ that\ runs\ use\ where\ they\ name\ none))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    list) _conductor_pools_list ;;
    show) _conductor_pools_show ;;
    add) _conductor_pools_add ;;
    rm) _conductor_pools_rm ;;
    use) _conductor_pools_use ;;
  esac
}

_conductor_pools_list() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_pools_show() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME: _conductor_values "pools names --known" none'
}

_conductor_pools_add() {
  _arguments -s -S \
    '(--about)'--about='[What it is for, for the list.]:ABOUT: ' \
    '(--all)'--all'[Of a pool that ships with this tool also the workers without a key.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME:(published published-full)' \
    '*:WORKER: _conductor_values "workers names" none'
}

_conductor_pools_rm() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME: _conductor_values "pools names --own" none'
}

_conductor_pools_use() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::NAME: _conductor_values "pools names" none'
}

_conductor_keys() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((set\:Keep\ a\ provider\'\''s\ key\ in\ the\ system\'\''s\ keyring list\:List\ the\ keys\ that\ are\ at\ hand\:\ where\ each\ is,\ and\ how\ old rm\:Remove\ a\ stored\ key test\:Ask\ each\ provider\ whether\ it\ takes\ its\ key\:\ one\ request\ each\ that\ costs\ nothing,\ all\ at\ once))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    set) _conductor_keys_set ;;
    list) _conductor_keys_list ;;
    rm) _conductor_keys_rm ;;
    test) _conductor_keys_test ;;
  esac
}

_conductor_keys_set() {
  _arguments -s -S \
    '(--base-url)'--base-url='[Send it to this address, not to the provider'\''s own.]:URL: ' \
    '(--insecure-storage)'--insecure-storage'[Keep it in a file that is not encrypted, after a yes.]' \
    '(-y --yes)'{-y,--yes}'[Say yes to a file that is not encrypted.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:PROVIDER:(openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible)'
}

_conductor_keys_list() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_keys_rm() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:PROVIDER:(openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible)'
}

_conductor_keys_test() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:PROVIDER:(openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible)'
}

_conductor_model() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((bench\:Measure\ how\ long\ planning\ takes\ on\ this\ machine\:\ loading,\ the\ remembered\ prompt,\ reading,\ writing list\:List\ the\ models\ that\ are\ here\ and\ those\ that\ can\ be\ pulled pull\:Get\ a\ model\:\ checked\ by\ its\ SHA-256,\ going\ on\ where\ an\ earlier\ try\ ended prepare\:Read\ the\ fixed\ part\ of\ the\ prompt\ now\ and\ keep\ its\ state\ on\ disk\;\ done\ by\ itself\ when\ the\ pool\ changes import\:Take\ a\ model\ file\ that\ is\ on\ this\ machine\:\ checked,\ recognised,\ not\ stored\ twice use\:Choose\ the\ model\ that\ plans,\ from\ now\ on verify\:Read\ a\ model\'\''s\ files\ again\ and\ compare\ them\ with\ what\ is\ known\ of\ them\;\ 5\ when\ one\ is\ damaged rm\:Remove\ a\ model\:\ its\ files,\ as\ far\ as\ conductor\ put\ them\ there,\ what\ of\ it\ was\ begun,\ and\ what\ it\ remembers path\:Print\ the\ file\ of\ a\ model,\ or\ which\ model\ plans\:\ a\ file\'\''s\ path,\ a\ URL,\ or\ provider/model))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    bench) _conductor_model_bench ;;
    list) _conductor_model_list ;;
    pull) _conductor_model_pull ;;
    prepare) _conductor_model_prepare ;;
    import) _conductor_model_import ;;
    use) _conductor_model_use ;;
    verify) _conductor_model_verify ;;
    rm) _conductor_model_rm ;;
    path) _conductor_model_path ;;
  esac
}

_conductor_model_bench() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(--gpu-layers)'--gpu-layers='[Layers of a local model on the GPU.]:auto|all|N:(auto all)' \
    '(--adapter)'--adapter='[A LoRA adapter (GGUF) laid over a local conductor.]:FILE:_files' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '*:NAME|FILE: _conductor_values "model names --here" files'
}

_conductor_model_list() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_model_pull() {
  _arguments -s -S \
    '(--use --no-use)'{--use,--no-use}'[Let it plan from now on; without this it does where none is chosen yet.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::NAME: _conductor_values "model names --known" none'
}

_conductor_model_prepare() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_model_import() {
  _arguments -s -S \
    '(--name)'--name='[What to call it.]:NAME: ' \
    '(--base)'--base='[The model that a LoRA is laid over.]:NAME|FILE: _conductor_values "model names --here" files' \
    '(--copy)'--copy'[Make a copy of its own, also across disks.]' \
    '(--use --no-use)'{--use,--no-use}'[Let it plan from now on; without this it does where none is chosen yet.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:PATH:_files'
}

_conductor_model_use() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME|FILE|URL|PROVIDER/MODEL: _conductor_values "model names --here" files'
}

_conductor_model_verify() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::NAME|FILE: _conductor_values "model names --here" files'
}

_conductor_model_rm() {
  _arguments -s -S \
    '(-y --yes)'{-y,--yes}'[Do not ask.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:NAME: _conductor_values "model names --here" none'
}

_conductor_model_path() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1::NAME: _conductor_values "model names --here" none'
}

_conductor_config() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -s -S -C \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:command:((show\:Show\ every\ setting,\ its\ value,\ and\ where\ it\ comes\ from get\:Print\ one\ setting\'\''s\ value set\:Set\ one\ setting\ in\ conductor\'\''s\ own\ file path\:Print\ the\ files\ that\ settings\ come\ from))' \
    '*:: :->rest' && return
  [[ $state == rest ]] || return
  curcontext="${curcontext%:*}-$words[1]:"
  case $words[1] in
    show) _conductor_config_show ;;
    get) _conductor_config_get ;;
    set) _conductor_config_set ;;
    path) _conductor_config_path ;;
  esac
}

_conductor_config_show() {
  _arguments -s -S \
    '(--json)'--json'[Write JSON.]' \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

_conductor_config_get() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:SECTION.KEY:(conductor.model conductor.profile conductor.adapter conductor.mode conductor.pool conductor.gpu_layers conductor.context conductor.threads conductor.prepare limits.steps limits.parallel limits.attempts limits.recursion limits.seconds limits.cost limits.tokens limits.calls limits.cost_day limits.tokens_day limits.calls_day patience.first patience.idle patience.total policy.allow policy.deny policy.local_only policy.files_only policy.no_question policy.no_others policy.approve policy.project output.progress output.color output.markdown output.brief chat.context traces.keep)'
}

_conductor_config_set() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]' \
    '1:SECTION.KEY:(conductor.model conductor.profile conductor.adapter conductor.mode conductor.pool conductor.gpu_layers conductor.context conductor.threads conductor.prepare limits.steps limits.parallel limits.attempts limits.recursion limits.seconds limits.cost limits.tokens limits.calls limits.cost_day limits.tokens_day limits.calls_day patience.first patience.idle patience.total policy.allow policy.deny policy.local_only policy.files_only policy.no_question policy.no_others policy.approve policy.project output.progress output.color output.markdown output.brief chat.context traces.keep)' \
    '2:VALUE: '
}

_conductor_config_path() {
  _arguments -s -S \
    '(-h --help)'{-h,--help}'[Show this message and exit.]'
}

# as a file of $fpath, or read by `source`
if [[ $funcstack[1] == _conductor ]]; then
  _conductor "$@"
else
  compdef _conductor conductor conductor-llm
fi
