# Completion of `conductor` for PowerShell (5.1 and newer); `conductor complete` says what may stand next.

Register-ArgumentCompleter -Native -CommandName @('conductor', 'conductor-llm') -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $before = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
    # the typed word is the last of the names that are parted by commas, or all of them
    $length = [Math]::Min($commandAst.Extent.Text.Length, $cursorPosition - $commandAst.Extent.StartOffset)
    $current = ($commandAst.Extent.Text.Substring(0, $length) -split ' ')[-1]
    $known = 0
    if ($current.EndsWith($wordToComplete)) { $known = $current.Length - $wordToComplete.Length }

    foreach ($line in (& $commandAst.GetCommandName() complete ":$current" @before 2>$null)) {
        $word, $about = $line -split "`t", 2
        if ($word.StartsWith(':')) {
            $head = ''
            if ($wordToComplete -match '^(--[^=]*=)') { $head = $Matches[1] }
            $typed = $wordToComplete.Substring($head.Length)
            foreach ($each in [System.Management.Automation.CompletionCompleters]::CompleteFilename($typed)) {
                if ($word -eq ':files' -or $each.ResultType -eq 'ProviderContainer') {
                    $text = "$head$($each.CompletionText)"
                    [System.Management.Automation.CompletionResult]::new($text, $each.ListItemText, $each.ResultType, $text)
                }
            }
        } else {
            if (-not $about) { $about = $word }
            $text = $word.Substring($known)
            [System.Management.Automation.CompletionResult]::new($text, $word, 'ParameterValue', $about)
        }
    }
}
