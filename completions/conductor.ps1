# Completion of `conductor` for PowerShell. Generated from the commands: see CONTRIBUTING.md.

Register-ArgumentCompleter -Native -CommandName @('conductor', 'conductor-llm') -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    # the commands below a command
    $commands = @{
        '' = [ordered]@{
            'ask' = 'Ask a question: plan it, run the plan over the workers, print the answer'
            'chat' = 'Talk: one question after the other, each knows the ones before'
            'plan' = 'Plan a question: print the plan and its estimate, or into a file or pipe the plan for conductor run'
            'run' = 'Run a plan from a file or a pipe, as conductor plan wrote it or edited'
            'eval' = 'Put the same cases to every way of using the workers, and compare what was right and what it took'
            'train' = 'Train a conductor by reward: sample plans, run them over your workers, and keep what answers well'
            'setup' = 'Set up what is missing, step by step: keys, workers, limits, the conductor model'
            'cost' = 'Show what was spent: by day, provider and worker, beside the limits of a day'
            'doctor' = 'Check everything: the conductor plans a question, each worker says a word, which costs next to nothing'
            'completions' = 'Print the completion script of a shell, as in: source <(conductor completions bash)'
            'trace' = 'Stored runs: list, search, show, replay, compare, run again, export, remove'
            'workers' = 'The models that do subtasks'
            'pools' = 'Named sets of workers, one of which a run may choose from'
            'keys' = 'Keys of providers: where they are, and whether they are good'
            'model' = 'The conductor model: the one that plans'
            'config' = 'Settings: where they come from and what they are'
        }
        ' trace' = [ordered]@{
            'list' = 'List stored runs, newest first'
            'search' = 'Search the questions, subtasks and answers of stored runs'
            'show' = 'Show a stored run: question, plan, who did what, answer, usage; or who read what of it'
            'replay' = 'Show a stored run again as it happened'
            'diff' = 'Compare two stored runs: question, plan, steps, answers and what they took, side by side'
            'rerun' = 'Run a stored plan again from step N on, as a new run; earlier steps are taken from the trace and not called'
            'export' = 'Export a stored run: a page with a timeline that needs nothing else, Markdown, or JSON'
            'prune' = 'Delete old runs'
            'path' = 'Print where traces are, or the file of one run'
            'rm' = 'Delete stored runs'
        }
        ' workers' = [ordered]@{
            'list' = 'List the workers of the settings, or those found at hand where none are named'
            'show' = 'Show a worker: its model and settings, who reads what it is sent, its price, key, and what it is good at'
            'add' = 'Add a worker, or change one that was added'
            'rm' = 'Remove workers that were added; pools lose them too'
            'enable' = 'Let workers be used again'
            'disable' = 'Keep workers, but do not use them'
            'test' = 'Ask each worker for a token, all at once, with its own settings; a cheap live call each'
            'calibrate' = 'Measure what each worker is good at, and keep it as the card that the conductor and routers go by'
        }
        ' pools' = [ordered]@{
            'list' = 'List the pools, and those that ship with this tool'
            'show' = 'Show who is in a pool; one that ships, with its sources'
            'add' = 'Make a pool of workers, or add one that ships (published)'
            'rm' = 'Remove a pool that was added; its workers stay'
            'use' = 'Choose the pool that runs use where they name none'
        }
        ' keys' = [ordered]@{
            'set' = 'Keep a provider''s key in the system''s keyring'
            'list' = 'List the keys that are at hand: where each is, and how old'
            'rm' = 'Remove a stored key'
            'test' = 'Ask each provider whether it takes its key: one request each that costs nothing, all at once'
        }
        ' model' = [ordered]@{
            'bench' = 'Measure how long planning takes on this machine: loading, the remembered prompt, reading, writing'
            'list' = 'List the models that are here and those that can be pulled'
            'pull' = 'Get a model: checked by its SHA-256, going on where an earlier try ended'
            'prepare' = 'Read the fixed part of the prompt now and keep its state on disk; done by itself when the pool changes'
            'import' = 'Take a model file that is on this machine: checked, recognised, not stored twice'
            'use' = 'Choose the model that plans, from now on'
            'verify' = 'Read a model''s files again and compare them with what is known of them; 5 when one is damaged'
            'rm' = 'Remove a model: its files, as far as conductor put them there, what of it was begun, and what it remembers'
            'path' = 'Print the file of a model, or which model plans: a file''s path, a URL, or provider/model'
        }
        ' config' = [ordered]@{
            'show' = 'Show every setting, its value, and where it comes from'
            'get' = 'Print one setting''s value'
            'set' = 'Set one setting in conductor''s own file'
            'path' = 'Print the files that settings come from'
        }
    }
    # the options of a command
    $options = @{
        '' = [ordered]@{
            '--config' = 'Settings file to use instead of config.toml.'
            '--color' = 'Colour: auto, always or never.'
            '--debug' = 'Log what happens inside to stderr; show tracebacks.'
            '-q' = 'Nothing on stderr but errors.'
            '--quiet' = 'Nothing on stderr but errors.'
            '--version' = 'Show the version.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' ask' = [ordered]@{
            '-f' = 'Attach a text file; may be repeated.'
            '--file' = 'Attach a text file; may be repeated.'
            '--system' = 'System text for every worker.'
            '-c' = 'Continue the last run, or run ID, as a conversation.'
            '--continue' = 'Continue the last run, or run ID, as a conversation.'
            '--resume' = 'Finish a run that was stopped; only what is missing is called.'
            '--mode' = 'mini: one worker; auto: up to five steps; ultra: reason first, review after.'
            '--workers' = 'Use only these workers.'
            '--pool' = 'Use only the workers of this pool; '''' for all of them.'
            '--conductor' = 'The model that plans: a GGUF file, a URL, or provider/model.'
            '--allow' = 'Ask only these: worker names, tag:NAME, provider:NAME.'
            '--deny' = 'Never ask these; named as for --allow.'
            '--local-only' = 'Let nothing leave this machine: neither workers nor the conductor.'
            '--max-steps' = 'Most steps of the plan, 1 to 5.'
            '--recursion' = 'Reviews by the conductor itself behind the plan.'
            '--max-cost' = 'Most US dollars for the run.'
            '--max-tokens' = 'Most tokens for the run, in and out.'
            '--max-calls' = 'Most worker calls for the run.'
            '--max-time' = 'Most seconds for the run.'
            '--schema' = 'JSON Schema for the answer; one that is no JSON exits 7.'
            '--seed' = 'Seed for whatever is drawn.'
            '--gpu-layers' = 'Layers of a local model on the GPU.'
            '--adapter' = 'A LoRA adapter (GGUF) laid over a local conductor.'
            '--approve' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--yes' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--format' = 'What goes to stdout: the answer, one JSON object, or the events.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--brief' = 'A step that has ended is one line.'
            '--rehearsal' = 'Use the tiny models that ship with this tool: no key, no download.'
            '--no-trace' = 'Store no trace of this run.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' chat' = [ordered]@{
            '-f' = 'Attach a text file; may be repeated.'
            '--file' = 'Attach a text file; may be repeated.'
            '--system' = 'System text for every worker.'
            '-c' = 'Go on with the conversation of the last run, or of run ID.'
            '--continue' = 'Go on with the conversation of the last run, or of run ID.'
            '--mode' = 'mini: one worker; auto: up to five steps; ultra: reason first, review after.'
            '--workers' = 'Use only these workers.'
            '--pool' = 'Use only the workers of this pool; '''' for all of them.'
            '--conductor' = 'The model that plans: a GGUF file, a URL, or provider/model.'
            '--allow' = 'Ask only these: worker names, tag:NAME, provider:NAME.'
            '--deny' = 'Never ask these; named as for --allow.'
            '--local-only' = 'Let nothing leave this machine: neither workers nor the conductor.'
            '--max-steps' = 'Most steps of the plan, 1 to 5.'
            '--recursion' = 'Reviews by the conductor itself behind the plan.'
            '--max-cost' = 'Most US dollars for the run.'
            '--max-tokens' = 'Most tokens for the run, in and out.'
            '--max-calls' = 'Most worker calls for the run.'
            '--max-time' = 'Most seconds for the run.'
            '--seed' = 'Seed for whatever is drawn.'
            '--gpu-layers' = 'Layers of a local model on the GPU.'
            '--adapter' = 'A LoRA adapter (GGUF) laid over a local conductor.'
            '--approve' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--yes' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--brief' = 'A step that has ended is one line.'
            '--rehearsal' = 'Use the tiny models that ship with this tool: no key, no download.'
            '--no-trace' = 'Store no trace of this run.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' plan' = [ordered]@{
            '-f' = 'Attach a text file; may be repeated.'
            '--file' = 'Attach a text file; may be repeated.'
            '--system' = 'System text for every worker.'
            '--mode' = 'mini: one worker; auto: up to five steps; ultra: reason first, review after.'
            '--workers' = 'Use only these workers.'
            '--pool' = 'Use only the workers of this pool; '''' for all of them.'
            '--conductor' = 'The model that plans: a GGUF file, a URL, or provider/model.'
            '--allow' = 'Ask only these: worker names, tag:NAME, provider:NAME.'
            '--deny' = 'Never ask these; named as for --allow.'
            '--local-only' = 'Let nothing leave this machine: neither workers nor the conductor.'
            '--max-steps' = 'Most steps of the plan, 1 to 5.'
            '--seed' = 'Seed for whatever is drawn.'
            '--gpu-layers' = 'Layers of a local model on the GPU.'
            '--adapter' = 'A LoRA adapter (GGUF) laid over a local conductor.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--flow' = 'Show who reads what: question, files, whose answers.'
            '--rehearsal' = 'Use the tiny models that ship with this tool: no key, no download.'
            '--no-trace' = 'Store no trace of this run.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' run' = [ordered]@{
            '--workers' = 'Use only these workers.'
            '--pool' = 'Use only the workers of this pool; '''' for all of them.'
            '--conductor' = 'The model that plans: a GGUF file, a URL, or provider/model.'
            '--allow' = 'Ask only these: worker names, tag:NAME, provider:NAME.'
            '--deny' = 'Never ask these; named as for --allow.'
            '--local-only' = 'Let nothing leave this machine: neither workers nor the conductor.'
            '--recursion' = 'Reviews by the conductor itself behind the plan.'
            '--max-cost' = 'Most US dollars for the run.'
            '--max-tokens' = 'Most tokens for the run, in and out.'
            '--max-calls' = 'Most worker calls for the run.'
            '--max-time' = 'Most seconds for the run.'
            '--seed' = 'Seed for whatever is drawn.'
            '--gpu-layers' = 'Layers of a local model on the GPU.'
            '--approve' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--yes' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--format' = 'What goes to stdout: the answer, one JSON object, or the events.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--brief' = 'A step that has ended is one line.'
            '--rehearsal' = 'Use the tiny models that ship with this tool: no key, no download.'
            '--no-trace' = 'Store no trace of this run.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' eval' = [ordered]@{
            '--systems' = 'Which ways to use the workers; all is every one.'
            '--n' = 'How many cases: 500 of the rehearsal, 60 of basics, all of a file.'
            '--seed' = 'Draws the cases, and all else that is drawn.'
            '--workers' = 'Use only these workers.'
            '--pool' = 'Use only the workers of this pool; '''' for all of them.'
            '--conductor' = 'The model that plans: a GGUF file, a URL, or provider/model.'
            '--allow' = 'Ask only these: worker names, tag:NAME, provider:NAME.'
            '--deny' = 'Never ask these; named as for --allow.'
            '--local-only' = 'Let nothing leave this machine: neither workers nor the conductor.'
            '--from' = 'The file is math500, mmlu, aime25 or gpqa-diamond.'
            '--parallel' = 'Runs at once.'
            '--resume' = 'Go on with one; what failed is asked again.'
            '--rescore' = 'Score its stored answers again, without a call.'
            '--scorer' = 'With --rescore: for all cases, another than their own.'
            '--html' = 'Write a report with plots, too.'
            '--json' = 'Write JSON.'
            '-y' = 'Begin without a question, though it may cost money.'
            '--yes' = 'Begin without a question, though it may cost money.'
            '--max-cost' = 'Stop when the runs have cost so much in all.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--list' = 'List the evaluations that are kept.'
            '--print-cases' = 'Write the cases as JSON Lines, and ask nobody.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' train' = [ordered]@{
            '--preset' = 'The course: the rehearsal''s own, in minutes on a CPU; or the published recipe.'
            '--cases' = 'What to practise on, as eval takes it.'
            '--from' = 'The file is math500, mmlu, aime25 or gpqa-diamond.'
            '--base' = 'The base model, in Hugging Face''s form; not fetched.'
            '--workers' = 'Use only these workers.'
            '--profile' = 'How it is spoken to: workers by name and card, or by number alone.'
            '--lora' = 'Train an adapter of low rank, or all weights.'
            '--full' = 'Train an adapter of low rank, or all weights.'
            '--steps' = 'Steps of training.'
            '--prompts' = 'Cases of a step.'
            '--group' = 'Plans sampled for each case.'
            '--seed' = 'Draws cases, pools and plans.'
            '--out' = 'Checkpoints, answers and curve; a training goes on there.'
            '--max-cost' = 'Stop when the workers have cost so much in all.'
            '--cost-weight' = 'What the dearest right plan pays; 0 none.'
            '--vllm' = 'What samples plans: see docs/train.md.'
            '--minutes' = 'End this stage then; exit 3 if more is left.'
            '--threads' = 'Threads of torch for the rehearsal.'
            '--export' = 'At the end write GGUF, which conductor model use takes.'
            '--merged' = 'With --export and --lora: a whole model, not an adapter.'
            '--dry-run' = 'Check model, pool, cases, memory and cost; train nothing.'
            '-y' = 'Begin without a question, though it may cost money.'
            '--yes' = 'Begin without a question, though it may cost money.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' setup' = [ordered]@{
            '-y' = 'Do all that is proposed, without asking.'
            '--yes' = 'Do all that is proposed, without asking.'
            '--model' = 'The conductor model: a name of model list, a file, a URL, provider/model, or none.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' cost' = [ordered]@{
            '--days' = 'How many days, today last.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' doctor' = [ordered]@{
            '--offline' = 'Call no model and no server: only look at this machine.'
            '--rehearsal' = 'Prove it with the tiny models that ship with this tool: no key, no network.'
            '--bundle' = 'Write a zip for a bug report; no key is in it.'
            '--with-trace' = 'Put this run into the bundle, question and answers too.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' completions' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace list' = [ordered]@{
            '-n' = 'How many, newest first.'
            '--count' = 'How many, newest first.'
            '--state' = 'Only runs in this state; may be repeated.'
            '--worker' = 'Only runs that this worker worked in.'
            '--mode' = 'Only runs of this mode.'
            '--since' = 'Only runs begun since: 30min, 12h, 7d, 2w or a day, 2026-11-20.'
            '--text' = 'Only runs that hold this text; may be repeated.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace search' = [ordered]@{
            '-n' = 'How many, newest first.'
            '--count' = 'How many, newest first.'
            '--state' = 'Only runs in this state; may be repeated.'
            '--worker' = 'Only runs that this worker worked in.'
            '--mode' = 'Only runs of this mode.'
            '--since' = 'Only runs begun since: 30min, 12h, 7d, 2w or a day, 2026-11-20.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace show' = [ordered]@{
            '--step' = 'The whole prompt and answer of one step.'
            '--prompts' = 'With what each worker was sent.'
            '--flow' = 'Show who reads what: question, files, whose answers.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace replay' = [ordered]@{
            '--speed' = '4 is four times as fast; 0 shows it at once.'
            '--step' = 'Go on by key: space shows the next event, q the rest.'
            '--format' = 'What goes to stdout: the answer, one JSON object, or the events.'
            '--progress' = 'What goes to stderr meanwhile.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace diff' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace rerun' = [ordered]@{
            '--from' = 'The first step that is done again.'
            '--worker' = 'Who does that step now, instead of who did it.'
            '--conductor' = 'The model that plans: a GGUF file, a URL, or provider/model.'
            '--allow' = 'Ask only these: worker names, tag:NAME, provider:NAME.'
            '--deny' = 'Never ask these; named as for --allow.'
            '--local-only' = 'Let nothing leave this machine: neither workers nor the conductor.'
            '--max-cost' = 'Most US dollars for the run.'
            '--max-tokens' = 'Most tokens for the run, in and out.'
            '--max-calls' = 'Most worker calls for the run.'
            '--max-time' = 'Most seconds for the run.'
            '--seed' = 'Seed for whatever is drawn.'
            '--gpu-layers' = 'Layers of a local model on the GPU.'
            '--approve' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--yes' = 'Show the plan and its estimate and wait for a yes before any worker is called; --yes never asks.'
            '--format' = 'What goes to stdout: the answer, one JSON object, or the events.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--brief' = 'A step that has ended is one line.'
            '--no-trace' = 'Store no trace of this run.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace export' = [ordered]@{
            '--format' = 'What it becomes; without it as FILE is called, or html.'
            '--out' = 'Write there instead of to stdout.'
            '--html' = 'Write a page there.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace prune' = [ordered]@{
            '--older-than' = 'Runs begun longer ago: 12h, 30d, 8w.'
            '--keep' = 'Keep the newest N, however old they are.'
            '--dry-run' = 'Only say what would be deleted.'
            '-y' = 'Do not ask.'
            '--yes' = 'Do not ask.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace path' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' trace rm' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers list' = [ordered]@{
            '--prices' = 'What each costs, and where that is known from.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers show' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers add' = [ordered]@{
            '-k' = 'openai, anthropic, gemini, ollama, llama, openai-compatible ...'
            '--kind' = 'openai, anthropic, gemini, ollama, llama, openai-compatible ...'
            '-m' = 'The provider''s model id, or a GGUF file.'
            '--model' = 'The provider''s model id, or a GGUF file.'
            '--about' = 'What it is good at, for the conductor.'
            '--base-url' = 'Another address than the provider''s own.'
            '--key-env' = 'The variable that holds its key.'
            '--context' = 'Tokens it can read and write.'
            '--max-tokens' = 'Most tokens of one answer.'
            '--temperature' = '--temperature'
            '--top-p' = 'Share of the likeliest tokens to draw from.'
            '--reasoning-effort' = 'How hard it thinks: none, low, high ...'
            '--thinking-budget' = 'Tokens it may think; 0 for none.'
            '--parallel' = 'Steps it may do at once.'
            '--price' = 'US dollars for a million tokens in and out.'
            '--tag' = 'A word to sort it by; may be repeated.'
            '--unset' = 'Take a setting out; may be repeated.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers rm' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers enable' = [ordered]@{
            '--pool' = 'Every worker of this pool.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers disable' = [ordered]@{
            '--pool' = 'Every worker of this pool.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers test' = [ordered]@{
            '--pool' = 'Every worker of this pool.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' workers calibrate' = [ordered]@{
            '--rehearsal' = 'Measure the rehearsal''s workers, not yours.'
            '--workers' = 'Use only these workers.'
            '--pool' = 'Use only the workers of this pool; '''' for all of them.'
            '--n' = 'How many cases.'
            '--seed' = 'Draws the cases.'
            '--parallel' = 'Runs at once.'
            '--again' = 'Measure anew what was measured on this set.'
            '--out' = 'Write the cards there instead.'
            '-y' = 'Begin without a question, though it may cost money.'
            '--yes' = 'Begin without a question, though it may cost money.'
            '--progress' = 'What goes to stderr meanwhile.'
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' pools' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' pools list' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' pools show' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' pools add' = [ordered]@{
            '--about' = 'What it is for, for the list.'
            '--all' = 'Of a pool that ships with this tool also the workers without a key.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' pools rm' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' pools use' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' keys' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' keys set' = [ordered]@{
            '--base-url' = 'Send it to this address, not to the provider''s own.'
            '--insecure-storage' = 'Keep it in a file that is not encrypted, after a yes.'
            '-y' = 'Say yes to a file that is not encrypted.'
            '--yes' = 'Say yes to a file that is not encrypted.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' keys list' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' keys rm' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' keys test' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model bench' = [ordered]@{
            '--json' = 'Write JSON.'
            '--gpu-layers' = 'Layers of a local model on the GPU.'
            '--adapter' = 'A LoRA adapter (GGUF) laid over a local conductor.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model list' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model pull' = [ordered]@{
            '--use' = 'Let it plan from now on; without this it does where none is chosen yet.'
            '--no-use' = 'Let it plan from now on; without this it does where none is chosen yet.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model prepare' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model import' = [ordered]@{
            '--name' = 'What to call it.'
            '--base' = 'The model that a LoRA is laid over.'
            '--copy' = 'Make a copy of its own, also across disks.'
            '--use' = 'Let it plan from now on; without this it does where none is chosen yet.'
            '--no-use' = 'Let it plan from now on; without this it does where none is chosen yet.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model use' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model verify' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model rm' = [ordered]@{
            '-y' = 'Do not ask.'
            '--yes' = 'Do not ask.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' model path' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' config' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' config show' = [ordered]@{
            '--json' = 'Write JSON.'
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' config get' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' config set' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
        ' config path' = [ordered]@{
            '-h' = 'Show this message and exit.'
            '--help' = 'Show this message and exit.'
        }
    }
    # what an option's value may be, or an argument of a command
    $values = @{
        ' --config' = @{ words = ''; asked = ''; paths = 'file' }
        ' --color' = @{ words = 'auto always never'; asked = ''; paths = '' }
        ' ask -f' = @{ words = ''; asked = ''; paths = 'file' }
        ' ask --file' = @{ words = ''; asked = ''; paths = 'file' }
        ' ask --system' = @{ words = ''; asked = ''; paths = '' }
        ' ask -c' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' ask --continue' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' ask --resume' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' ask --mode' = @{ words = 'mini auto ultra'; asked = ''; paths = '' }
        ' ask --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' ask --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' ask --conductor' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' ask --allow' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' ask --deny' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' ask --max-steps' = @{ words = ''; asked = ''; paths = '' }
        ' ask --recursion' = @{ words = ''; asked = ''; paths = '' }
        ' ask --max-cost' = @{ words = ''; asked = ''; paths = '' }
        ' ask --max-tokens' = @{ words = ''; asked = ''; paths = '' }
        ' ask --max-calls' = @{ words = ''; asked = ''; paths = '' }
        ' ask --max-time' = @{ words = ''; asked = ''; paths = '' }
        ' ask --schema' = @{ words = ''; asked = ''; paths = 'file' }
        ' ask --seed' = @{ words = ''; asked = ''; paths = '' }
        ' ask --gpu-layers' = @{ words = 'auto all'; asked = ''; paths = '' }
        ' ask --adapter' = @{ words = ''; asked = ''; paths = 'file' }
        ' ask --format' = @{ words = 'answer json jsonl'; asked = ''; paths = '' }
        ' ask --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' ask ' = @{ words = ''; asked = ''; paths = '' }
        ' chat -f' = @{ words = ''; asked = ''; paths = 'file' }
        ' chat --file' = @{ words = ''; asked = ''; paths = 'file' }
        ' chat --system' = @{ words = ''; asked = ''; paths = '' }
        ' chat -c' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' chat --continue' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' chat --mode' = @{ words = 'mini auto ultra'; asked = ''; paths = '' }
        ' chat --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' chat --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' chat --conductor' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' chat --allow' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' chat --deny' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' chat --max-steps' = @{ words = ''; asked = ''; paths = '' }
        ' chat --recursion' = @{ words = ''; asked = ''; paths = '' }
        ' chat --max-cost' = @{ words = ''; asked = ''; paths = '' }
        ' chat --max-tokens' = @{ words = ''; asked = ''; paths = '' }
        ' chat --max-calls' = @{ words = ''; asked = ''; paths = '' }
        ' chat --max-time' = @{ words = ''; asked = ''; paths = '' }
        ' chat --seed' = @{ words = ''; asked = ''; paths = '' }
        ' chat --gpu-layers' = @{ words = 'auto all'; asked = ''; paths = '' }
        ' chat --adapter' = @{ words = ''; asked = ''; paths = 'file' }
        ' chat --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' plan -f' = @{ words = ''; asked = ''; paths = 'file' }
        ' plan --file' = @{ words = ''; asked = ''; paths = 'file' }
        ' plan --system' = @{ words = ''; asked = ''; paths = '' }
        ' plan --mode' = @{ words = 'mini auto ultra'; asked = ''; paths = '' }
        ' plan --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' plan --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' plan --conductor' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' plan --allow' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' plan --deny' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' plan --max-steps' = @{ words = ''; asked = ''; paths = '' }
        ' plan --seed' = @{ words = ''; asked = ''; paths = '' }
        ' plan --gpu-layers' = @{ words = 'auto all'; asked = ''; paths = '' }
        ' plan --adapter' = @{ words = ''; asked = ''; paths = 'file' }
        ' plan --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' plan ' = @{ words = ''; asked = ''; paths = '' }
        ' run --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' run --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' run --conductor' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' run --allow' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' run --deny' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' run --recursion' = @{ words = ''; asked = ''; paths = '' }
        ' run --max-cost' = @{ words = ''; asked = ''; paths = '' }
        ' run --max-tokens' = @{ words = ''; asked = ''; paths = '' }
        ' run --max-calls' = @{ words = ''; asked = ''; paths = '' }
        ' run --max-time' = @{ words = ''; asked = ''; paths = '' }
        ' run --seed' = @{ words = ''; asked = ''; paths = '' }
        ' run --gpu-layers' = @{ words = 'auto all'; asked = ''; paths = '' }
        ' run --format' = @{ words = 'answer json jsonl'; asked = ''; paths = '' }
        ' run --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' run ' = @{ words = ''; asked = ''; paths = 'file' }
        ' eval --systems' = @{ words = 'all alone best-worker random keyword reflection vote moa pipeline best-routing conductor-mini conductor conductor-ultra conductor-recursion'; asked = ''; paths = '' }
        ' eval --n' = @{ words = ''; asked = ''; paths = '' }
        ' eval --seed' = @{ words = ''; asked = ''; paths = '' }
        ' eval --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' eval --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' eval --conductor' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' eval --allow' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' eval --deny' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' eval --from' = @{ words = 'math500 aime25 mmlu gpqa-diamond'; asked = ''; paths = '' }
        ' eval --parallel' = @{ words = ''; asked = ''; paths = '' }
        ' eval --resume' = @{ words = 'last'; asked = ''; paths = '' }
        ' eval --rescore' = @{ words = 'last'; asked = ''; paths = '' }
        ' eval --scorer' = @{ words = 'exact number choice math'; asked = ''; paths = '' }
        ' eval --html' = @{ words = ''; asked = ''; paths = 'file' }
        ' eval --max-cost' = @{ words = ''; asked = ''; paths = '' }
        ' eval --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' eval ' = @{ words = 'rehearsal basics'; asked = ''; paths = 'file' }
        ' train --preset' = @{ words = 'rehearsal paper'; asked = ''; paths = '' }
        ' train --cases' = @{ words = 'basics'; asked = ''; paths = 'file' }
        ' train --from' = @{ words = 'math500 aime25 mmlu gpqa-diamond'; asked = ''; paths = '' }
        ' train --base' = @{ words = ''; asked = ''; paths = 'directory' }
        ' train --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' train --profile' = @{ words = 'prompted published'; asked = ''; paths = '' }
        ' train --steps' = @{ words = ''; asked = ''; paths = '' }
        ' train --prompts' = @{ words = ''; asked = ''; paths = '' }
        ' train --group' = @{ words = ''; asked = ''; paths = '' }
        ' train --seed' = @{ words = ''; asked = ''; paths = '' }
        ' train --out' = @{ words = ''; asked = ''; paths = 'file' }
        ' train --max-cost' = @{ words = ''; asked = ''; paths = '' }
        ' train --cost-weight' = @{ words = ''; asked = ''; paths = '' }
        ' train --vllm' = @{ words = 'off colocate'; asked = ''; paths = '' }
        ' train --minutes' = @{ words = ''; asked = ''; paths = '' }
        ' train --threads' = @{ words = ''; asked = ''; paths = '' }
        ' setup --model' = @{ words = ''; asked = 'model names --known'; paths = '' }
        ' cost --days' = @{ words = ''; asked = ''; paths = '' }
        ' doctor --bundle' = @{ words = ''; asked = ''; paths = 'file' }
        ' doctor --with-trace' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' completions ' = @{ words = 'bash zsh fish powershell'; asked = ''; paths = '' }
        ' trace list -n' = @{ words = ''; asked = ''; paths = '' }
        ' trace list --count' = @{ words = ''; asked = ''; paths = '' }
        ' trace list --state' = @{ words = 'finished partial failed running interrupted unreadable'; asked = ''; paths = '' }
        ' trace list --worker' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' trace list --mode' = @{ words = 'mini auto ultra'; asked = ''; paths = '' }
        ' trace list --since' = @{ words = ''; asked = ''; paths = '' }
        ' trace list --text' = @{ words = ''; asked = ''; paths = '' }
        ' trace search -n' = @{ words = ''; asked = ''; paths = '' }
        ' trace search --count' = @{ words = ''; asked = ''; paths = '' }
        ' trace search --state' = @{ words = 'finished partial failed running interrupted unreadable'; asked = ''; paths = '' }
        ' trace search --worker' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' trace search --mode' = @{ words = 'mini auto ultra'; asked = ''; paths = '' }
        ' trace search --since' = @{ words = ''; asked = ''; paths = '' }
        ' trace search ' = @{ words = ''; asked = ''; paths = '' }
        ' trace show --step' = @{ words = ''; asked = ''; paths = '' }
        ' trace show ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' trace replay --speed' = @{ words = ''; asked = ''; paths = '' }
        ' trace replay --format' = @{ words = 'answer json jsonl'; asked = ''; paths = '' }
        ' trace replay --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' trace replay ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' trace diff ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' trace rerun --from' = @{ words = ''; asked = ''; paths = '' }
        ' trace rerun --worker' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' trace rerun --conductor' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' trace rerun --allow' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' trace rerun --deny' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' trace rerun --max-cost' = @{ words = ''; asked = ''; paths = '' }
        ' trace rerun --max-tokens' = @{ words = ''; asked = ''; paths = '' }
        ' trace rerun --max-calls' = @{ words = ''; asked = ''; paths = '' }
        ' trace rerun --max-time' = @{ words = ''; asked = ''; paths = '' }
        ' trace rerun --seed' = @{ words = ''; asked = ''; paths = '' }
        ' trace rerun --gpu-layers' = @{ words = 'auto all'; asked = ''; paths = '' }
        ' trace rerun --format' = @{ words = 'answer json jsonl'; asked = ''; paths = '' }
        ' trace rerun --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' trace rerun ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' trace export --format' = @{ words = 'html markdown json'; asked = ''; paths = '' }
        ' trace export --out' = @{ words = ''; asked = ''; paths = 'file' }
        ' trace export --html' = @{ words = ''; asked = ''; paths = 'file' }
        ' trace export ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' trace prune --older-than' = @{ words = ''; asked = ''; paths = '' }
        ' trace prune --keep' = @{ words = ''; asked = ''; paths = '' }
        ' trace path ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' trace rm ' = @{ words = ''; asked = 'trace names'; paths = '' }
        ' workers show ' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' workers add -k' = @{ words = 'openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible litellm llama'; asked = ''; paths = '' }
        ' workers add --kind' = @{ words = 'openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible litellm llama'; asked = ''; paths = '' }
        ' workers add -m' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --model' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --about' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --base-url' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --key-env' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --context' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --max-tokens' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --temperature' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --top-p' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --reasoning-effort' = @{ words = 'none minimal low medium high xhigh max default'; asked = ''; paths = '' }
        ' workers add --thinking-budget' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --parallel' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --price' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --tag' = @{ words = ''; asked = ''; paths = '' }
        ' workers add --unset' = @{ words = ''; asked = ''; paths = '' }
        ' workers add ' = @{ words = ''; asked = ''; paths = '' }
        ' workers rm ' = @{ words = ''; asked = 'workers names --own'; paths = '' }
        ' workers enable --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' workers enable ' = @{ words = ''; asked = 'workers names --own'; paths = '' }
        ' workers disable --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' workers disable ' = @{ words = ''; asked = 'workers names --own'; paths = '' }
        ' workers test --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' workers test ' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' workers calibrate --workers' = @{ words = ''; asked = 'workers names'; paths = '' }
        ' workers calibrate --pool' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' workers calibrate --n' = @{ words = ''; asked = ''; paths = '' }
        ' workers calibrate --seed' = @{ words = ''; asked = ''; paths = '' }
        ' workers calibrate --parallel' = @{ words = ''; asked = ''; paths = '' }
        ' workers calibrate --out' = @{ words = ''; asked = ''; paths = 'file' }
        ' workers calibrate --progress' = @{ words = 'auto tree plain none'; asked = ''; paths = '' }
        ' workers calibrate ' = @{ words = ''; asked = ''; paths = 'file' }
        ' pools show ' = @{ words = ''; asked = 'pools names --known'; paths = '' }
        ' pools add --about' = @{ words = ''; asked = ''; paths = '' }
        ' pools add ' = @{ words = 'published published-full'; asked = 'workers names'; paths = '' }
        ' pools rm ' = @{ words = ''; asked = 'pools names --own'; paths = '' }
        ' pools use ' = @{ words = ''; asked = 'pools names'; paths = '' }
        ' keys set --base-url' = @{ words = ''; asked = ''; paths = '' }
        ' keys set ' = @{ words = 'openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible'; asked = ''; paths = '' }
        ' keys rm ' = @{ words = 'openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible'; asked = ''; paths = '' }
        ' keys test ' = @{ words = 'openai anthropic gemini deepseek xai mistral groq deepinfra openrouter ollama vllm llama-server openai-compatible'; asked = ''; paths = '' }
        ' model bench --gpu-layers' = @{ words = 'auto all'; asked = ''; paths = '' }
        ' model bench --adapter' = @{ words = ''; asked = ''; paths = 'file' }
        ' model bench ' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' model pull ' = @{ words = ''; asked = 'model names --known'; paths = '' }
        ' model import --name' = @{ words = ''; asked = ''; paths = '' }
        ' model import --base' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' model import ' = @{ words = ''; asked = ''; paths = 'file' }
        ' model use ' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' model verify ' = @{ words = ''; asked = 'model names --here'; paths = 'file' }
        ' model rm ' = @{ words = ''; asked = 'model names --here'; paths = '' }
        ' model path ' = @{ words = ''; asked = 'model names --here'; paths = '' }
        ' config get ' = @{ words = 'conductor.model conductor.profile conductor.adapter conductor.mode conductor.pool conductor.gpu_layers conductor.context conductor.threads conductor.prepare limits.steps limits.parallel limits.attempts limits.recursion limits.seconds limits.cost limits.tokens limits.calls limits.cost_day limits.tokens_day limits.calls_day patience.first patience.idle patience.total policy.allow policy.deny policy.local_only policy.files_only policy.no_question policy.no_others policy.approve policy.project output.progress output.color output.markdown output.brief chat.context traces.keep'; asked = ''; paths = '' }
        ' config set ' = @{ words = 'conductor.model conductor.profile conductor.adapter conductor.mode conductor.pool conductor.gpu_layers conductor.context conductor.threads conductor.prepare limits.steps limits.parallel limits.attempts limits.recursion limits.seconds limits.cost limits.tokens limits.calls limits.cost_day limits.tokens_day limits.calls_day patience.first patience.idle patience.total policy.allow policy.deny policy.local_only policy.files_only policy.no_question policy.no_others policy.approve policy.project output.progress output.color output.markdown output.brief chat.context traces.keep'; asked = ''; paths = '' }
    }

    # which command stands on the line: option values are no commands
    $path = ''
    $at = ''
    foreach ($element in ($commandAst.CommandElements | Select-Object -Skip 1)) {
        if ($element.Extent.EndOffset -ge $cursorPosition) { break }
        $word = $element.ToString()
        $isValue = $at -and $word -notlike '-*'
        $at = ''
        if ($isValue) { continue }
        if ($commands.ContainsKey($path) -and $commands[$path].Contains($word)) {
            $path = "$path $word"
        } elseif ($values.ContainsKey("$path $word")) {
            $at = "$path $word"
        }
    }

    $typed = $wordToComplete
    $before = ''
    if ($typed -match '^(--[^=]+)=(.*)$' -and $values.ContainsKey("$path $($Matches[1])")) {
        $at = "$path $($Matches[1])"
        $before = "$($Matches[1])="
        $typed = $Matches[2]
    }

    $found = [ordered]@{}
    $paths = ''
    if ($typed -like '-*') {
        if ($options.ContainsKey($path)) { $found = $options[$path] }
    } elseif (-not $at -and $commands.ContainsKey($path)) {
        $found = $commands[$path]
    } else {
        if (-not $at) { $at = "$path " }
        if ($values.ContainsKey($at)) {
            $value = $values[$at]
            $paths = $value.paths
            foreach ($word in ($value.words -split ' ')) { if ($word) { $found[$word] = $word } }
            if ($value.asked) {
                $asked = $value.asked -split ' '
                $program = $commandAst.GetCommandName()
                foreach ($word in (& $program @asked 2>$null)) { $found[$word] = $word }
            }
        }
    }

    # not `$found.Keys`: there is a command of that name
    foreach ($entry in $found.GetEnumerator()) {
        $word = $entry.Key
        if ($word.StartsWith($typed, [System.StringComparison]::Ordinal)) {
            [System.Management.Automation.CompletionResult]::new("$before$word", $word, 'ParameterValue', $entry.Value)
        }
    }
    if ($paths) {
        foreach ($each in [System.Management.Automation.CompletionCompleters]::CompleteFilename($typed)) {
            if ($paths -eq 'file' -or $each.ResultType -eq 'ProviderContainer') {
                $text = "$before$($each.CompletionText)"
                [System.Management.Automation.CompletionResult]::new($text, $each.ListItemText, $each.ResultType, $text)
            }
        }
    }
}
