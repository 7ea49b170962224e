"""`conductor plan`: the plan as a file, and what it is to do and to cost; nothing is called but the conductor."""

from __future__ import annotations

import typer

from conductor_cli.cli import options as opt


def plan(
    context: typer.Context,
    question: opt.Words = None,
    file: opt.Files = None,
    system: opt.System = None,
    mode: opt.ModeOption = None,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    conductor: opt.ConductorOption = None,
    allow: opt.Allow = None,
    deny: opt.Deny = None,
    local_only: opt.LocalOnly = False,
    max_steps: opt.MaxSteps = None,
    seed: opt.Seed = None,
    gpu_layers: opt.GpuLayers = None,
    adapter: opt.Adapter = None,
    progress: opt.ProgressOption = None,
    flow: opt.Flow = False,
    rehearsal: opt.Rehearsal = False,
    no_trace: opt.NoTrace = False,
) -> None:
    """Plan a question: print the plan and its estimate, or into a file or pipe the plan for conductor run."""
    from conductor_cli.app.data_flow import print_plan
    from conductor_cli.cli.question_input import build_question
    from conductor_cli.cli.session import Session
    from conductor_cli.core.plan import Plan

    flags = {
        "limits.steps": max_steps, "conductor.model": conductor, "conductor.gpu_layers": gpu_layers,
        "conductor.adapter": adapter, "conductor.pool": pool,
        "conductor.mode": mode.value if mode else None, "output.progress": progress.value if progress else None,
    }  # fmt: skip
    flags |= opt.policy_settings(allow, deny, local_only)
    only = opt.parse_names(workers)
    session = Session(context.obj, opt.check_settings(flags), keep=not no_trace, rehearsal=rehearsal)
    asked = build_question(question or (), file or (), system, None, None)
    run, code = session.plan(asked, only=only, seed=seed)
    if not isinstance(run.trace.plan, Plan) or code != 0:
        raise typer.Exit(code or 1)
    print_plan(run, session.settings.limits, session.around, flow=flow)
