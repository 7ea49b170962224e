# ruff: noqa: RUF001 - characters that look alike are what is tested
"""How the scorers read answers as people write them, in forms, languages and notations.

The forms are those in which scorers of this kind were wrong before, and variants of them: a right
answer in each of the first tables counts, and one in a form of the second does not.
"""

from __future__ import annotations

from typing import Final

import pytest

from conductor_cli.evals.scorers import SCORERS
from tests.growth import assert_grows_linearly

FOUR: Final = ("red", "green", "a cat", "none of them")


def is_right(scorer: str, text: str, answer: str) -> bool:
    choices = FOUR if scorer == "choice" else ()
    return SCORERS[scorer].is_correct(text, answer, choices)


def write(form: str, answer: str) -> str:
    return form.replace("<A>", answer)


NUMBERS: Final = ("42", "204", "1125", "7.5")
NUMBER_GIVEN: Final = (
    "<A>",
    "<A>.",
    "**<A>**",
    "The answer is <A>.",
    "The answer is **<A>**.",
    "Answer: <A>",
    "**Answer:** <A>",
    "Final answer: <A>",
    r"\boxed{<A>}",
    r"$\boxed{<A>}$",
    r"So the answer is $\boxed{<A>}$.",
    "Therefore, the answer is $<A>$.",
    "#### <A>",
    "6 steps.\n#### <A>",
    "She spent <A> dollars.",
    "the amount <A>",
    "the quotient <A>",
    "Hence unit <A>",
    r"So we get the amount $\boxed{<A>}$",
    r"The coefficient is $\boxed{<A>}$",
    "the point <A>",
    "The answer is <A>. (I used 3 steps.)",
    "Answer: <A>\n\nNote: this took 3 steps.",
    "**<A>**\n\n*Sources: chapter 7*",
    "<A> (forty-two), as of 2024",
    "The answer is $<A>$ (not $13$).",
    "**<A>** (not **13**)",
    "<A>, not 13",
    "not 13 but <A>",
    "It's not 13, it's <A>.",
    "The answer is <A>, not 13.",
    "The answer is <A> because 3 + 4 = 7.",
    "The answer is approximately <A>.",
    "≈ <A>",
    "x = <A>",
    "The total is <A> apples.",
    '{"answer": <A>, "steps": 3}',
    '{"answer": "<A>", "steps": 3}',
    '```json\n{"answer": <A>}\n```',
    "<answer><A></answer>",
    "<think>maybe 13</think>\n<answer><A></answer>",
    "<think>13 or 14</think>\n\n<A>",
    r"\boxed{\text{<A>}}",
    r"\fbox{<A>}",
    r"\boxed{x = <A>}",
    r"first \boxed{13}, no, wait: \boxed{<A>}",
    "The answer is 13. No, wait, it is <A>.",
    "答案是<A>。",
    "答えは<A>です。",
    "정답은 <A>입니다.",
    "คำตอบคือ <A>",
    "คำตอบคือ<A>บาท",
    "الإجابة هي <A>.",
    "合計<A>円です",
    "总共有<A>个苹果。",
    "Die Antwort ist <A>.",
    "La réponse est <A>.",
    "La respuesta es <A>.",
    "The area is <A> cm^2.",
    "<A> kg/m^3",
    "<A> m/s^2",
    r"\boxed{<A> \text{ cm}^3}",
    r"$<A>\,\text{cm}^3$",
    "The area is <A> cm².",
    "<A>%",
    "<A> %",
    r"$<A>\%$",
    "<A>°",
    r"$<A>^\circ$",
    "It costs $<A>.",
    r"It costs \$<A>.",
    "€<A>",
    "<A> €",
    "<A> USD",
    "The answer is:\n\n<A>",
    "## Final Answer\n\n<A>",
    "Final Answer\n**<A>**",
    "The result is <A> by lemma 3.",
    "Step 1: add.\nStep 2: <A>",
    "6*7 = <A>",
    "6 × 7 = <A>",
    r"\(6 \cdot 7 = <A>\)",
    "In total, 12 + 30 = <A> apples remain in step 4.",
    "I am not sure, but I think it is <A>.",
    "I don't know exactly, but <A>.",
    "There is no doubt that the answer is <A>.",
    "Without doubt, <A>.",
    "Not 13. <A>.",
    "The answer cannot be 13, so it is <A>.",
    "13 is wrong; the answer is <A>.",
    "13 is not the answer. <A> is.",
    "- <A>",
    "* <A>",
    "1. We add.\n2. We get <A>.",
    "Answer - <A>",
    "Answer — <A>",
    "Answer = <A>",
    "the sum equals <A>",
    "**Result:** <A>",
    "Solution: <A>",
    "<A>\n\n(Explanation: 3 steps of 4.)",
    "<A>\n\nExplanation: 6 times 7.",
    "The answer is 6 times 7, which is <A>.",
    "The answer is the sum of 30 and 12, which is <A>.",
    "exactly <A> people",
    "She spent the rest, so <A> is what's left.",
    "Of 100 students, the percent is <A>.",
    "We want <A>.",
    "The present is <A>.",
    "The price rose from 13 to <A>.",
)


@pytest.mark.parametrize("form", NUMBER_GIVEN)
def test_a_number_is_read_in_each_form_of_an_answer(form: str) -> None:
    wrong = [answer for answer in NUMBERS if not is_right("number", write(form, answer), answer)]
    assert wrong == []


NUMBER_NOT_GIVEN: Final = (
    "not <A>",
    "It is not <A>.",
    "It isn't <A>.",
    "It cannot be <A>.",
    "It can't be <A>.",
    "I doubt that the answer is <A>.",
    "anything but <A>",
    "The answer is anything but <A>.",
    "13-<A>",
    "<A>-13",
    "<A> to 13",
    "13 to <A>",
    "<A> thousand",
    "The answer is <A> thousand.",
    "<A>!",
    "$ <A>! $",
    "at least <A>",
    "more than <A>",
    "The answer is at least <A>.",
    "The answer is more than <A>.",
    "less than <A>",
    r"\boxed{13} or \boxed{<A>}",
    r"\boxed{<A>} or \boxed{13}",
    r"\boxed{13} \boxed{<A>}",
    r"\boxed{<A>}, \boxed{13}",
    r"The answer is \boxed{13}. The answer is \boxed{<A>}.",
    "My guesses: 11, 13, <A>",
    "11, 13, <A>",
    "Candidates are 11, 13 and <A>.",
    "I stopped after step <A>.",
    "It is 13. I stopped after step <A>.",
    "<A> or 13",
    "13 or <A>",
    "either 13 or <A>",
    r"<A>\pi",
    r"\sqrt{<A>}",
    r"\pm <A>",
    "q + <A>",
    "<A> + q",
    "<A>x",
    "<A>^2",
    "<A>/5",
    "5/<A>",
    r"\frac{<A>}{5}",
    r"\frac{5}{<A>}",
    "between 13 and <A>",
    "between <A> and 50",
    "whether it is <A>",
    "Whether the answer is <A> or not, I cannot say.",
    "<A> is wrong.",
    "<A> is not the answer.",
    "<A> is incorrect",
    "He had <A> dollars and spent 12.",
    "The answer is $12$ (not $<A>$).",
    "**12** (not **<A>**)",
    "The answer is 12. Many would say <A>, which is a trap.",
    "The answer is 12 (<A> is wrong).",
    "12, not <A>",
    "-<A>",
    "–<A>",
    "−<A>",
    "-$<A>",
    "$<A>-13$",
    "13–<A>",
    "<A>–13",
    r"not \boxed{<A>}",
    "<A> mod 5",
    "<A> plus q",
    "<A> million",
    "1<A>",
    "The answer is not <A> but 12.",
    "答案不是<A>。",
    "答えは<A>ではありません。",
    "정답은 <A>이 아닙니다.",
    "ไม่ใช่ <A>",
    "ليس <A>",
    "<A>万",
    "rather than <A>",
    "instead of <A>",
    "<A> is too high",
    "$x^{<A>}$",
    "10^<A>",
    "x_<A>",
    "log_<A>",
    "<A>+",
    "<A> or more",
    "up to <A>",
    "<A>~50",
    "I'm not sure that it is <A>.",
)


@pytest.mark.parametrize("form", NUMBER_NOT_GIVEN)
def test_a_number_that_is_denied_doubted_open_or_a_part_is_no_answer(form: str) -> None:
    credited = [answer for answer in NUMBERS if is_right("number", write(form, answer), answer)]
    assert credited == []


NUMBERS_READ: Final = (
    ("1{,}125", "1125"),
    (r"1\,125", "1125"),
    (r"\boxed{1{,}125}", "1125"),
    (r"\boxed{1\,125}", "1125"),
    (r"\boxed{987,\!436}", "987436"),
    ("2{,}500", "2500"),
    (r"12\,345", "12345"),
    (r"\boxed{1,125}", "1125"),
    ("–3", "-3"),
    ("-$3", "-3"),
    ("−3", "-3"),
    ("-€3", "-3"),
    ("$-3$", "-3"),
    ("－３", "-3"),
    ("３", "3"),
    ("1,00,000", "100000"),
    ("1,600", "1600"),
    ("合計1,200円です", "1200"),
    ("3,5", "3.5"),
    ("1.234.567", "1234567"),
    ("1.234,56", "1234.56"),
    ("0,125", "0.125"),
    (r"The probability is \frac{1}{2}.", "0.5"),
    (r"\tfrac{3}{4}", "0.75"),
    ("1/2", "0.5"),
    ("½", "0.5"),
    ("2½", "2.5"),
    ("3 1/2", "3.5"),
    (r"3\frac{1}{2}", "3.5"),
    (r"-\frac{1}{2}", "-0.5"),
    (r"\frac12", "0.5"),
    (r"3\times10^5", "300000"),
    ("3 × 10^5", "300000"),
    (r"3 \times 10^{-2}", "0.03"),
    ("3·10⁵", "300000"),
    ("3万", "30000"),
    ("3만", "30000"),
    ("2.5 million", "2500000"),
    ("5 thousand", "5000"),
    ("84/12 = <<84/12=7>>7 dozen eggs", "7"),
    ("She rang 22 times.", "22"),
    ("٤٢", "42"),
    ("الجواب هو ٤٢", "42"),
    ("๔๒", "42"),
    ("４２", "42"),
    ("9.8 m/s^2", "9.8"),
    ("300 kg/m^3", "300"),
    ("25 cm^2", "25"),
    (r"\boxed{25 \text{ cm}^3}", "25"),
    (r"$25\,\text{cm}^3$", "25"),
    ("25 m^{2}", "25"),
    ("9.8 m s^-2", "9.8"),
    ("25 square cm", "25"),
    (r"25 \mathrm{~m}^2", "25"),
    ("#### 18", "18"),
    (
        "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 duck eggs a day.\nShe makes 9 * 2 = $<<9*2=18>>18 every day.\n#### 18",
        "18",
    ),
    ("#### 1,080", "1080"),
    ("#### 18 (9 * 2)", "18"),
    ("#### Total: 18 dollars", "18"),
    ("#### 9 * 2 = 18", "18"),
    ("#### Final Answer\n18", "18"),
    ("#### Step 1: Find 3 eggs\n…\n#### Step 2: 5 - 2 = 3\n\nThe answer is 18.", "18"),
    ("#### 1. Find the eggs\n…\n#### 2. Multiply by 2\nShe makes 18 dollars.", "18"),
    ("#### Take the 20% off\n90 - 72 = 18\n\nThe discount is 18.", "18"),
    ("#### Conclusion\n\nShe makes 18 dollars.", "18"),
    ("Answer: 5 - 2 = 3 apples", "3"),
    ("The answer is 16 - 3 - 4 = 9 eggs.", "9"),
    ("The answer is 2(5) = 10.", "10"),
    ("Answer: 42 - the price of 7 apples", "42"),
    ("He had 30 dollars and spent 12.", "12"),
    ("The answer is 1,080 dollars.", "1080"),
    (r"\text{Answer: } 42", "42"),
    (r"Answer: $\dfrac{84}{2}$", "42"),
    ("x=42", "42"),
    ("n≈42", "42"),
    ("The answer is 3 + 4 = 7.", "7"),
    (r"\boxed{3+4=7}", "7"),
    ("-42", "-42"),
    ("The temperature is -5 degrees.", "-5"),
    ("10 - 15 = -5", "-5"),
    ("(42)", "42"),
    ("[42]", "42"),
    ('"42"', "42"),
    ("'42'", "42"),
    ("“42”", "42"),
    ("Answer: 42 kg", "42"),
    ("Answer: 42 km/h", "42"),
    ("Answer: 42 miles per hour", "42"),
    ("You can't buy 13. So 42", "42"),
    ("He doesn't have 13 apples, he has 42.", "42"),
    ("In 2020, 42 people came.", "42"),
    ("World War II ended in 1945.", "1945"),
    ("1945", "1945"),
    ("The war began in 1939 and ended in 1945.", "1945"),
    ("a total of 42", "42"),
    ("The answer is US$42.", "42"),
    ("US$ 42", "42"),
    ("Answer: ~42", "42"),
    ('{"why": "3 steps", "answer": 42}', "42"),
    ('Here it is:\n~~~json\n{"answer": 42, "why": "40 + 2"}\n~~~\nDone in 3 steps.', "42"),
    ("The probability is 1/2, or 0.5.", "1/2"),
    (r"The probability is $\frac{1}{2}$ or 50%.", "0.5"),
    ("0.5 (or 50%)", "0.5"),
    ("The most likely answer is 42", "42"),
    ("The most reasonable guess is 42.", "42"),
    ("The answers are given above. The answer to this question is 42 after 3 steps.", "42"),
    ("$18k", "18000"),
    ("They raised $2.5M.", "2500000"),
    ("$k = 7$", "7"),
    ("The change is minus 3.", "-3"),
    ("It is negative 3 degrees", "-3"),
    ("9*2 => 18", "18"),
    ("-> 18", "18"),
    ("10^6", "1000000"),
    (r"$10^{-3}$", "0.001"),
    ("72 °F (22 °C)", "72"),
    ("60 km/h (37 mph)", "60"),
    ("The answer is 42 = 6 × 7.", "42"),
    ("The answer is 6 × 7 = 42.", "42"),
    (r"\begin{align} 40+2 &= 42 \end{align}", "42"),
)


@pytest.mark.parametrize(("text", "answer"), NUMBERS_READ)
def test_a_number_is_read_in_each_notation(text: str, answer: str) -> None:
    assert is_right("number", text, answer)


NUMBERS_MISREAD: Final = (
    (r"The probability is \frac{1}{2}.", "2"),
    (r"\tfrac{3}{4}", "4"),
    ("2{,}500", "500"),
    (r"12\,345", "345"),
    ("–3", "3"),
    ("-$3", "3"),
    ("3,5", "5"),
    ("1,00,000", "0"),
    ("合計1,200円です", "200"),
    ("He had 30 dollars and spent 12.", "30"),
    ("Of 7 planets, we want 3.", "7"),
    ("x^2", "2"),
    ("cm^2", "2"),
    (r"\frac{x}{2}", "2"),
    ("v1.2", "2"),
    ("5/3/2024", "2024"),
    ("2 or 3", "3"),
    ("log_2 8", "2"),
    ("5 - x", "5"),
    ("5 - sqrt(x)", "5"),
    ("The answer is 5 - 2.", "5"),
    ("#### 70 (or 71)", "70"),
    ("#### more than 18", "18"),
    ("#### not 18", "18"),
    (r"\{2, 3\}", "3"),
    ("1/2 or 1/3", "1/2"),
    ("x => 18 or 17", "18"),
    ("x >= 18", "18"),
    ("$18k", "18"),
    ("$7k + 1$", "7"),
    ("$7k + 1$", "7000"),
    ("negative 3", "3"),
    ("10 minus 3", "-3"),
    ("10^6", "6"),
    ("Most people would guess 5", "5"),
)


@pytest.mark.parametrize(("text", "answer"), NUMBERS_MISREAD)
def test_a_part_of_a_notation_is_no_number(text: str, answer: str) -> None:
    assert not is_right("number", text, answer)


EXPRESSIONS: Final = (
    "12",
    r"\frac{1}{2}",
    r"3\sqrt{2}",
    "p - q",
    "x^2+1",
    r"\left( 3, \frac{\pi}{2} \right)",
    "1{,}125",
)

EXPRESSION_GIVEN: Final = (
    "The answer is $<A>$ (not $13$).",
    "The answer is $<A>$.",
    "The answer is $<A>$ because $x=3$ and $y=4$",
    "**Answer:** $<A>$ (with $n=3$)",
    "The answer is $<A>$. Many would say $13$, which is a trap.",
    "The answer is not $13$ but $<A>$.",
    "The answer is $<A>$, not $13$.",
    "**$<A>$** (not **$13$**)",
    "Answer: $<A>$\n\nNote: this took $3$ steps.",
    "The answer is $<A>$. (I used 3 steps.)",
    "<answer><A></answer>",
    "<answer>$<A>$</answer>",
    r"\boxed{<A>}",
    r"\boxed{\text{Answer: }<A>}",
    r"\text{Answer: } $<A>$",
    r"So we get the amount $\boxed{<A>}$",
    r"the coefficient $\boxed{<A>}$",
    r"the point $\boxed{<A>}$",
    r"We want $\boxed{<A>}$",
    r"\[ <A> \]",
    "The answer is\n$$\n<A>\n$$",
    "$13$ is wrong; the answer is $<A>$.",
    "答案是$<A>$。",
    "答えは$<A>$です。",
    "정답은 $<A>$입니다.",
    "Die Antwort ist $<A>$.",
    "La réponse est $<A>$.",
    '```json\n{"a": 1}\n```\nAnswer: $<A>$',
    "Final Answer: The final answer is $<A>$. I hope it is correct.",
    "# Answer\n\n$<A>$",
    r"Therefore \(<A>\).",
    "There is no doubt that the answer is $<A>$.",
)


@pytest.mark.parametrize("form", EXPRESSION_GIVEN)
def test_an_expression_is_read_in_each_form_of_an_answer(form: str) -> None:
    missed = [item for item in EXPRESSIONS if not is_right("math", write(form, item), item)]
    assert missed == []


EXPRESSION_NOT_GIVEN: Final = (
    "The answer is $13$ (not $<A>$).",
    "The answer is $b$. Many would say $<A>$, which is a trap.",
    "anything but $<A>$",
    "The answer is anything but $<A>$.",
    "I doubt that the answer is $<A>$.",
    r"$\boxed{13}$ or $\boxed{<A>}$",
    r"\boxed{13} or \boxed{<A>}",
    "not $<A>$",
    "The answer is not $<A>$.",
    "The answer isn't $<A>$.",
    r"not $\boxed{<A>}$",
    "$13$, not $<A>$",
    "It cannot be $<A>$.",
    "The answer is $13$ because $x=<A>$",
    "**Answer:** $13$ (with $n=<A>$)",
    "$<A>$ is wrong",
    "The answer is not $<A>$ but $13$.",
    "Whether the answer is $<A>$ or not is unknown.",
    "答案不是$<A>$。",
    "The answer is $13$. $<A>$ is a trap.",
)


@pytest.mark.parametrize("form", EXPRESSION_NOT_GIVEN)
def test_an_expression_that_is_denied_doubted_or_beside_is_no_answer(form: str) -> None:
    credited = [item for item in EXPRESSIONS if is_right("math", write(form, item), item)]
    assert credited == []


EQUAL: Final = (
    ("The answer is no solution.", "no solution"),
    ("no solution", r"\text{no solution}"),
    (r"\boxed{\text{no solution}}", "no solution"),
    ("11 5/6", r"\frac{71}{6}"),
    (r"\frac{71}{6}", "11 5/6"),
    (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
    ("1,125", "1125"),
    ("5", "5"),
    ("The answer is 12.", "12"),
    ("The answer is $1$ and $2$.", "1,2"),
    ("–3", "-3"),
    ("$6 - 5 i$", "6 - 5i"),
    (r"\boxed{6 - 5\mathrm{i}}", "6 - 5i"),
    (r"\boxed{\frac{3i}{2}}", r"\frac{3}{2}i"),
    ("2√3", r"2\sqrt{3}"),
    ("The answer is √3/2.", r"\frac{\sqrt{3}}{2}"),
    ("2 sqrt(3)", r"2\sqrt{3}"),
    ("x² + 2x + 1", "x^2+2x+1"),
    ("120°", r"120^\circ"),
    ("½", r"\frac{1}{2}"),
    ("3π", r"3\pi"),
    ("3*pi", r"3\pi"),
    ("-∞", r"-\infty"),
    ("infinity", r"\infty"),
    ("12 cm²", "12"),
    ("3π cm²", r"3\pi"),
    ("x = 1 or x = -2", "1,-2"),
    ("The solutions are 1 and -2.", "1,-2"),
    ("1, 2 and 3", r"\{1,2,3\}"),
    ("The most likely answer is $12$.", "12"),
)

UNEQUAL: Final = (
    ("11 5/6", "8/3"),
    ("1/2^99", "1/2^98"),
    ("The answer is $12$ or $13$", "12"),
    ("$12$ or $13$", "13"),
    ("$6 + 5 i$", "6 - 5i"),
    ("$5 x$", "5i"),
    ("2√3", r"3\sqrt{2}"),
    ("x³", "x^2"),
    ("x = 1 or x = -2", "-2"),
    ("The answer is 1 and -2.", "1"),
    ("3π cm²", "3"),
    ("∞", r"-\infty"),
)


@pytest.mark.parametrize(("text", "answer"), EQUAL)
def test_words_and_mixed_numbers_are_compared_as_people_read_them(text: str, answer: str) -> None:
    assert is_right("math", text, answer)


@pytest.mark.parametrize(("text", "answer"), UNEQUAL)
def test_numbers_that_only_rounding_makes_equal_are_not(text: str, answer: str) -> None:
    assert not is_right("math", text, answer)


CONTAINED: Final = (
    ("It is the planet Mars.", "Mars"),
    ("the element oxygen", "oxygen"),
    ("the accountant Smith", "Smith"),
    ("I want blue", "blue"),
    ("日本的首都是东京。", "东京"),
    ("日本の首都は東京です。", "東京"),
    ("ประเทศไทยมีเมืองหลวงชื่อกรุงเทพมหานคร", "กรุงเทพ"),
    ("수도는 도쿄입니다.", "도쿄"),
    ("도쿄는 일본의 수도다", "도쿄"),
    ("عاصمة مصر هي القاهرة.", "قاهرة"),
    ("عاصمة مصر هي القاهرة.", "القاهرة"),
    ("في القاهرة", "القاهرة"),
    ("والقاهرة", "القاهرة"),
    ("بالقاهرة", "القاهرة"),
    ("foo **bar**", "foo bar"),
    ("café", "café"),
    ("it’s", "it's"),
    ("well‑known", "well-known"),
    ("答案是Python。", "Python"),
    ("Not Lyon but Paris", "Paris"),
    ("不是京都，而是东京。", "东京"),
    ("京都ではなく東京です。", "東京"),
    ("It's not Lyon. It's Paris.", "Paris"),
    ("I cannot deny it: Paris", "Paris"),
    ("その都市はロンドンです", "ロンドン"),
    ("サウルの首都", "サウル"),
    ("파리가 아니라 도쿄입니다", "도쿄"),
    ("**New** York", "New York"),
    ("`Paris`", "Paris"),
    ("The student Paris", "Paris"),
    ("Ｐａｒｉｓ", "Paris"),
    ("دمشق؟ لا، إنها بغداد", "بغداد"),
    ("Столица — Москва.", "Москва"),
    ("the C++ language", "C++"),
)


@pytest.mark.parametrize(("text", "answer"), CONTAINED)
def test_a_text_contains_an_answer_in_any_script(text: str, answer: str) -> None:
    assert is_right("contains", text, answer)


CONTAINED_NOT: Final = (
    ("It is not Paris.", "Paris"),
    ("It isn't Paris.", "Paris"),
    ("Paris is wrong.", "Paris"),
    ("Paris is not the answer.", "Paris"),
    ("不是东京", "东京"),
    ("东京是错误的", "东京"),
    ("東京ではありません", "東京"),
    ("도쿄가 아닙니다", "도쿄"),
    ("ไม่ใช่กรุงเทพ", "กรุงเทพ"),
    ("ليست القاهرة", "القاهرة"),
    ("Newark", "New"),
    ("ロサンゼルス", "ロサ"),
    ("한국인입니다", "한국"),
    ("12年", "2"),
    ("I doubt that it is Paris", "Paris"),
    ("anything but Paris", "Paris"),
    ("cannot be Paris", "Paris"),
    ("Parisian", "Paris"),
    ("neither Lyon nor Paris", "Paris"),
)


@pytest.mark.parametrize(("text", "answer"), CONTAINED_NOT)
def test_a_denied_answer_and_a_part_of_a_word_are_not_contained(text: str, answer: str) -> None:
    assert not is_right("contains", text, answer)


EXACT: Final = (
    ("答案是东京。", "东京"),
    ("答え：東京", "東京"),
    ("答えは東京です。", "東京"),
    ("정답은 도쿄입니다.", "도쿄"),
    ("คำตอบคือ กรุงเทพ", "กรุงเทพ"),
    ("الإجابة هي القاهرة.", "القاهرة"),
    ("Die Antwort ist Paris.", "Paris"),
    ("La réponse est Paris.", "Paris"),
    ("「東京」", "東京"),
    ("東京。", "東京"),
    ("Answer: Paris\n\nNote: it is the capital since 987.", "Paris"),
    ("Answer: Paris\n\n(It has been the capital since 987.)", "Paris"),
    ("The answer is Paris. It is the capital of France.", "Paris"),
    ("café", "café"),
    ("<think>Lyon?</think>Paris", "Paris"),
    ("<answer>Paris</answer>", "Paris"),
    ("The final answer is: **Paris**", "Paris"),
    ("it’s", "it's"),
    ("x**2", "x**2"),
    ("The most likely answer is Paris.", "Paris"),
    (r"\boxed{Paris}", "Paris"),
    (r"It is in the north. The final answer is $\boxed{\text{Paris}}$.", "Paris"),
    ('{"answer": "Paris"}', "Paris"),
    ('```json\n{"answer": "Paris", "why": "it is the capital"}\n```', "Paris"),
    ("It is in the north.\n\n**Answer:**\n\nParis", "Paris"),
    ("Final answer\n\nParis", "Paris"),
    ("### Answer\nParis", "Paris"),
    ("Paris!", "Paris"),
    ("Yahoo!", "Yahoo!"),
    ("I looked at it.\nThe correct answer to this question is Paris", "Paris"),
)


@pytest.mark.parametrize(("text", "answer"), EXACT)
def test_an_exact_answer_is_read_in_any_language(text: str, answer: str) -> None:
    assert is_right("exact", text, answer)


EXACT_NOT: Final = (
    ("答案不是东京。", "东京"),
    ("Answer: Paris\nor Lyon", "Paris"),
    ("The answer is Paris. Or Lyon.", "Paris"),
    ("The answer is Paris. No, Lyon.", "Paris"),
    ("The answer is not Paris", "Paris"),
    ("東京ではありません", "東京"),
    ("2**3", "23"),
    ("5!", "5"),
    (r"\boxed{Paris} or \boxed{Lyon}", "Paris"),
    ("Not the answer\nParis", "Paris"),
    ("Answer\nParis\nLyon", "Paris"),
)


@pytest.mark.parametrize(("text", "answer"), EXACT_NOT)
def test_another_exact_answer_is_wrong_in_any_language(text: str, answer: str) -> None:
    assert not is_right("exact", text, answer)


LETTER_GIVEN: Final = (
    "Answer: <<A>>",
    "**Answer: <<A>>**",
    "<b><A></b>",
    "<answer><A></answer>",
    "Answer: Statement <A>",
    "The answer is element <A>",
    "The limiting reactant (<A>).",
    "→ <A>",
    "=> <A>",
    "not B but <A>",
    "Not B, but <A>.",
    "Die richtige Antwort ist <A>",
    "Die Antwort lautet <A>.",
    "答案是<A>",
    "答案：<A>",
    "答案是 (<A>)。",
    "正确答案是<A>。",
    "选<A>",
    "选项<A>是正确的",
    "答えは<A>です",
    "正解は<A>です。",
    "정답은 <A>입니다.",
    "คำตอบคือ <A>",
    "الإجابة الصحيحة هي <A>",
    "La bonne réponse est <A>.",
    "La réponse est (<A>)",
    "La respuesta correcta es <A>",
    "The answer is B… on reflection I would rather go with <A>",
    "<think>maybe (B)</think><answer><A></answer>",
    "<think>(B) or (D)</think>\n\n<A>",
    "The answer is B. Wait, actually it is <A>.",
    r"\boxed{B} No, wait: \boxed{<A>}",
    "There is no doubt that the answer is <A>.",
    "Ответ: <A>",
    "不是B，而是<A>",
    "<A>が正解です",
    "Ｃ",
    "（<A>）",
    "The most appropriate answer is <A>.",
    "The answer is definitely <A>.",
    "The answer is most likely <A>",
    "The answer can only be <A>.",
    "The correct statement is <A>",
    "The most likely answer is (<A>), I think",
    "The correct answer to this question is <A>.",
    "<A> is the most accurate answer.",
    "Beyond any doubt, the answer is <A>",
    "Correct: <A>",
    "Ans: <A>",
    "<A> (a cat)",
    "<A> - a cat",
    "<A> — a cat",
    "<A> 🎉",
    "**<A>** ✅",
    "I'd say <A>",
    "That would be <A>",
    "I think <A>",
    "It is a cat.",
    r"\boxed{a cat}",
    r"The answer is \boxed{\text{a cat}}",
    "$a cat$",
)

LETTER_NOT_GIVEN: Final = (
    "The answer is not <<A>>",
    "Answer: <<A>> or <B>",
    "<<A>>B</<A>>",
    "I doubt that the answer is <A>",
    "Whether the answer is <A> or not",
    r"\boxed{B} \boxed{<A>}",
    r"\boxed{<A>} or \boxed{B}",
    "If the answer is <A>, then",
    "答案不是<A>",
    "<A>是错误的",
    "<A>ではない",
    "정답은 <A>가 아닙니다",
    "ไม่ใช่ <A>",
    "The answer is anything but <A>",
    "Some would say <A>",
    "Most people answer that it is <A>",
    "It is not a cat.",
    "<A> (red)",
    "<A> is the most likely mistake",
    "That could be <A>",
    "The answer is <A>. No, wait, actually it is B.",
    "Die Antwort ist nicht <A>",
)


@pytest.mark.parametrize("form", LETTER_GIVEN)
def test_a_letter_is_read_in_each_form_and_language(form: str) -> None:
    assert is_right("choice", write(form, "C"), "C")


@pytest.mark.parametrize("form", LETTER_NOT_GIVEN)
def test_a_letter_that_is_denied_doubted_or_taken_back_is_no_answer(form: str) -> None:
    assert not is_right("choice", write(form, "C"), "C")


@pytest.mark.timeout(60)  # work that grows with the square takes longer
@pytest.mark.parametrize(
    "pattern",
    [
        "wait, the answer is ",
        "note: x\n",
        "not ",
        "doubt ",
        "1/2 ",
        "1 or ",
        "答案是",
        "(1) ",
        "[1] ",
        "\\frac{",
    ],
)
@pytest.mark.parametrize("scorer", ["exact", "contains", "number", "choice"])
def test_the_time_to_read_an_answer_grows_with_its_length(scorer: str, pattern: str) -> None:
    answer = "4" if scorer == "number" else "A"
    assert_grows_linearly(
        lambda text: is_right(scorer, text, answer), lambda size: pattern * size, 25_000
    )
