"""The page in a browser where something fails, is refused, or is more than fits.

What it says then, and that nothing typed is lost.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from conductor_cli.core import events as ev
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import TWO, Stage, refuses, says, stalls
from tests.server.chromium import Page, chromium
from tests.server.plain_api import Serving, serving, until
from tests.server.test_page import put
from tests.traces import make
from tests.traces.stored import begin_run

LISTED = "Array.from(at('runs').children, item => item.dataset.run)"


def open_page(page: Page, server: Serving, run: str = "") -> None:
    """Open the page, on a run where one is named, once it can act."""
    page.open(f"{server.url}/#/run/{run}" if run else server.url)
    page.wait("!!at('model').value")


def fail_at_first(page: Page, part: str, times: int) -> None:
    """Have the first requests whose address has a part find no server."""
    page.value(
        f"window.left = {times}; window.real = fetch; fetch = (path, ...rest) => "
        f"path.includes('{part}') && left-- > 0 ? Promise.reject(new TypeError()) : "
        "real(path, ...rest)"
    )


def test_the_answer_of_one_run_is_not_shown_with_another(stage: Stage, tmp_path: Path) -> None:
    stage.ok("ask", "The good one")
    stage.models = dict.fromkeys(("alpha", "beta"), refuses(400))
    stage.inside("ask", "The bad one")
    runs = {row["question"]: row["run"] for row in stage.ok("trace", "list", "--json").json}
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server, runs["The good one"])
        page.wait("!at('answer').hidden && at('answer').textContent.includes('alpha answers')")
        page.value(f"location.hash = '#/run/{runs['The bad one']}'")
        page.wait("at('title').textContent === 'The bad one' && run.total > 0")
        assert page.value("at('answer').hidden && at('answer').textContent === ''")


def test_an_answer_is_asked_for_until_the_server_is_back(stage: Stage, tmp_path: Path) -> None:
    stage.ok("ask", "Why?")
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server, "1")  # there is no such run
        fail_at_first(page, "/steps/0", 2)
        page.value(f"location.hash = `#/run/${{{LISTED}[0]}}`")
        page.wait("at('problem').textContent === 'The server does not answer.'")
        page.wait("!at('answer').hidden && !at('rating').hidden && at('problem').hidden")


def test_what_could_not_be_done_is_said_while_a_run_goes_on(stage: Stage, tmp_path: Path) -> None:
    """The frames of the run hide it no more; the file that is refused is named."""
    stage.models["alpha"] = stalls("Never")
    empty = tmp_path / "empty.txt"
    empty.touch()
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.value("at('question').value = 'How?'; at('asking').requestSubmit()")
        page.wait("at('tree').textContent.includes('Never')")
        page.choose_files("#files", empty)
        page.value("at('question').value = 'And this?'; at('asking').requestSubmit()")
        page.wait("at('undone').textContent === 'empty.txt is empty'")
        page.value("window.seen = run.frame; 0")
        page.wait("run.frame !== seen")
        assert page.value("!at('undone').hidden && at('question').value === 'And this?'")
        page.value("at('stop').click()")
        page.wait("at('outcome').textContent.includes('interrupted')")
        assert page.value("at('undone').hidden")
        page.wait("!!at('answer').querySelector('.box.partial')")
        shown = page.value("items.get('0').word.textContent")
    assert shown.startswith("question stopped"), "the tree says what the outcome says"


def test_the_next_question_may_be_typed_while_one_is_sent(stage: Stage, tmp_path: Path) -> None:
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.value(
            "at('question').value = 'First'; at('asking').requestSubmit(); "
            "at('question').value = 'Second'"
        )
        page.wait("!at('asking-on').hidden && at('title').textContent === 'First'")
        assert page.value("at('question').value") == "Second"


def test_a_remark_and_an_edit_of_a_plan_stay_where_they_are_refused(
    stage: Stage, tmp_path: Path
) -> None:
    """No part of a long remark is cut off while it is typed."""
    stage.plan = TWO
    stage.ok("config", "set", "serve.approvals", "true")
    run = stage.run("ask", "--bg", "--approve", "May it?").out.strip()
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server, run)
        page.wait("at('decisions').childElementCount === 4")
        page.value("at('decisions').children[3].click()")
        page.press("x" * 3000)
        assert page.value("at('feedback').value.length") == 3000
        fail_at_first(page, "/decision", 1)
        page.value("at('replanning').requestSubmit()")
        page.wait("at('refused').textContent === 'The server does not answer.'")
        assert page.value("at('feedback').value.length") == 3000
        page.value("at('decisions').children[2].click()")
        page.value("at('edited').querySelector('textarea').value = 'Say it loudly.'")
        page.value("at('decisions').children[2].click(); at('decisions').children[2].click()")
        page.value("location.hash = '#/run/none'")
        page.wait("at('waits').hidden")
        page.value(f"location.hash = '#/run/{run}'")
        page.wait("!at('waits').hidden && at('decisions').childElementCount === 4")
        page.value("at('decisions').children[2].click()")
        assert page.value("at('edited').querySelector('textarea').value") == "Say it loudly."
    stage.ok("trace", "cancel", run)


def test_a_key_that_is_none_is_refused_and_asked_for_again(stage: Stage, tmp_path: Path) -> None:
    """Whoever closes the question is told that nothing is shown without a key."""
    key = stage.ok("serve", "keys", "add", "ann").out.split()[-1]
    with serving() as server, chromium(tmp_path) as page:
        page.open(server.url)
        page.wait("at('ask').open")
        page.press(f"Bearer {key}", "Enter")
        page.wait("at('wrong').textContent.startsWith('This is no key')")
        assert page.value("at('ask').open && !at('wrong').hidden")
        page.press("Escape")
        page.wait("!at('ask').open")
        page.wait("!at('unlock').hidden && at('empty').textContent.includes('needs a key')")
        page.value("at('unlock').click()")
        page.wait("at('ask').open && at('wrong').hidden")
        page.press(key, "Enter")
        page.wait("at('unlock').hidden && at('empty').textContent === 'There are no runs yet.'")


def test_the_list_stays_whole_while_runs_begin(stage: Stage, tmp_path: Path) -> None:
    """Also where more of it is shown twice at once, and a run far down ends."""
    store = TraceStore(stage.traces)

    def add(number: int) -> str:
        run = f"20260201-10{number // 60:02}{number % 60:02}-00000a"
        put(store, make.retry(), run)
        return run

    begun, *others = make.retry()
    assert isinstance(begun, ev.RunStarted)
    going = begin_run(
        store, "20260201-095959-00000a", [replace(begun, run="20260201-095959-00000a")]
    )
    added = [add(number) for number in range(40)]
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.wait("at('runs').childElementCount === 30")
        page.value("at('more').click(); at('more').click()")
        page.wait("at('runs').childElementCount === 41")
        added += [add(number) for number in range(40, 45)]
        page.wait(f"{LISTED}[0] === '{added[-1]}'")
        expected = [*added[::-1], "20260201-095959-00000a"]
        assert page.value(LISTED) == expected
        last = "at('runs').lastChild.textContent"
        assert "running" in page.value(last)
        for event in others:
            going.write(event)
        going.close()
        page.wait(f"{last}.includes('finished')")
        assert page.value(LISTED) == expected


def test_an_address_with_half_a_character_is_that_of_no_run(stage: Stage, tmp_path: Path) -> None:
    with serving() as server, chromium(tmp_path) as page:
        page.open(f"{server.url}/#/run/%zz")
        page.wait("at('problem').textContent.includes('there is no run')")
        page.wait("at('empty').textContent === 'There are no runs yet.'")


def test_without_scripts_the_page_says_what_is_missing(stage: Stage, tmp_path: Path) -> None:
    with serving() as server, chromium(tmp_path) as page:
        page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.open(server.url)
        until(lambda: "conductor trace list" in page.value("document.body?.innerText ?? ''"))


def test_files_that_no_request_can_carry_are_refused_before_they_are_sent(
    stage: Stage, tmp_path: Path
) -> None:
    """The bound of the page is below that of the server."""
    large = tmp_path / "large"
    large.write_bytes(b"x" * 26_000_000)
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.choose_files("#files", large)
        page.value("at('question').value = 'Read it.'; at('asking').requestSubmit()")
        page.wait("at('undone').textContent === 'The files have more than 25 MB together.'")


def test_the_list_says_what_trace_list_says(stage: Stage, tmp_path: Path) -> None:
    """How long a run took is without its waiting; what it recovered by itself is named."""
    store = TraceStore(stage.traces)
    put(store, make.substitute(), "20260201-100000-00000a")
    run = stage.run("ask", "--bg", "--approve", "May it?").out.strip()
    (row,) = (row for row in stage.ok("trace", "list", "--json").json if row["run"] != run)
    assert row["recovered"]
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.wait("at('runs').childElementCount === 2")
        page.wait(f"at('runs').children[1].textContent.includes('{row['state']}, recovered')")
        until(lambda: page.value("listed[0].waited") > 2)
        shown = page.value("at('runs').children[0].textContent")
    seconds = re.search(r"(\d+\.\d) s$", shown)
    assert seconds is not None
    assert float(seconds[1]) < 2
    stage.ok("trace", "cancel", run)


def test_no_word_or_number_of_a_table_is_broken_on_a_phone(stage: Stage, tmp_path: Path) -> None:
    """The tables are moved sideways there."""
    names = ["Architecture", "Sustainability", "Documentation", "1,234,567"]
    rows = [names, ["-"] * len(names), names]
    stage.models["alpha"] = says("\n".join(f"| {' | '.join(row)} |" for row in rows))
    stage.ok("ask", "Compare them.")
    with serving() as server, chromium(tmp_path) as page:
        page.open(server.url, width=320)
        page.wait("!at('rating').hidden")
        assert page.value("document.documentElement.scrollWidth") <= 320
        broken = page.value(
            "Array.from(document.querySelectorAll('#run th, #run td'))"
            ".filter(cell => !/\\s/.test(cell.textContent)).filter(cell => {"
            "const text = document.createRange(); text.selectNodeContents(cell);"
            "return text.getClientRects().length > 1; }).map(cell => cell.textContent)"
        )
    assert broken == []


def test_many_long_questions_leave_a_connection_for_the_rest(stage: Stage, tmp_path: Path) -> None:
    """A browser has six to a server.

    The seventh question is asked, and its run stopped; the others end when the tab is closed.
    """
    stage.models["alpha"] = stalls("Never")
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        for number in range(7):
            page.value(f"at('question').value = 'Q{number}'; at('asking').requestSubmit()")
            page.wait(f"at('title').textContent === 'Q{number}' && !at('stop').hidden")
        page.wait("at('runs').childElementCount === 7")
        page.value("at('stop').click()")
        page.wait("at('outcome').textContent.includes('interrupted')")
        page.open("about:blank")
        until(lambda: stage.ok("trace", "list").out.count("cancelled") >= 5)


def test_an_answer_that_no_file_has_is_told_by_its_stream(stage: Stage, tmp_path: Path) -> None:
    stage.ok("config", "set", "traces.keep", "never")
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.value("at('question').value = 'Why?'; at('asking').requestSubmit()")
        page.wait("at('problem').textContent === 'alpha answers' && !at('problem').hidden")


def test_a_tab_that_nobody_sees_holds_no_connection(stage: Stage, tmp_path: Path) -> None:
    """It looks at its run from time to time; once it is seen, it follows the run again."""
    stage.models["alpha"] = stalls("Never")
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server)
        page.value("at('question').value = 'How?'; at('asking').requestSubmit()")
        page.wait("at('tree').textContent.includes('Never')")
        page.value(
            "window.real = fetch; window.looks = []; window.unseen = true; "
            "Object.defineProperty(document, 'hidden', { get: () => unseen }); "
            "fetch = (path, how) => { if (path.endsWith('/frames')) looks.push(how.signal); "
            "return real(path, how); }; 0"
        )
        page.wait("looks.length >= 2 && looks[0].aborted")
        page.value("unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
        page.value("window.seen = run.frame.at + 3; 0")
        page.wait("!looks.at(-1).aborted && run.frame.at > seen")
        page.value("at('stop').click()")
        page.wait("at('outcome').textContent.includes('interrupted')")
