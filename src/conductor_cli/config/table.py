"""Every setting, once: its name, type, default and meaning. Files, environment, `config` and the docs read this table."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from conductor_cli.core.errors import ConfigError

PREFIX: Final = "CONDUCTOR_LLM_"
"""What the environment variables begin with. Other tools own `CONDUCTOR_*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `name` is `section.key`, `type` one of text, whole, number, money, yes-no."""

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.name.upper().replace(".", "_")

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {"text": "text in quotes", "whole": "a whole number", "number": "a number", "money": "US dollars, as a number"}
        return words.get(self.type, "true or false")

    def check(self, value: Any) -> Any:  # noqa: ANN401 - any TOML value
        """`value` as this setting keeps it. Raises `ConfigError` with what was expected."""
        kinds: dict[str, tuple[type, ...]] = {"text": (str,), "whole": (int,), "number": (int, float), "yes-no": (bool,)}
        if self.type == "money":
            return self._money(value)
        wrong = not isinstance(value, kinds[self.type]) or (isinstance(value, bool) and self.type != "yes-no")
        if wrong or (self.choices and value not in self.choices):
            raise ConfigError(f"{self.name} is {value!r:.60}; expected {self.expected}")
        return float(value) if self.type == "number" else value

    def _money(self, value: Any) -> Decimal:  # noqa: ANN401 - any TOML value
        try:
            money = Decimal(str(value))
        except InvalidOperation:
            money = Decimal("NaN")
        if isinstance(value, bool) or not money.is_finite():
            raise ConfigError(f"{self.name} is {value!r:.60}; expected {self.expected}")
        return money

    def parse(self, text: str) -> Any:  # noqa: ANN401 - any TOML value
        """The value that `text`, from a command line or the environment, means. Raises `ConfigError`."""
        words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
        try:
            match self.type:
                case "whole":
                    return self.check(int(text))
                case "number":
                    return self.check(float(text))
                case "yes-no":
                    return words[text.strip().lower()]
                case _:
                    return self.check(text)
        except (ValueError, KeyError):
            raise ConfigError(f"{self.name} is {text!r:.60}; expected {self.expected}") from None


SETTINGS: Final = (
    Setting(name="conductor.model", type="text", default="", help="the model that plans: a GGUF file, a URL, or provider/model"),
    Setting(name="conductor.profile", type="text", default="prompted", choices=("prompted", "prompted-json", "published"),
            help="how the conductor reads and writes plans"),
    Setting(name="conductor.mode", type="text", default="auto", choices=("mini", "auto", "ultra"),
            help="one worker; up to five steps; reasoning and recursion too"),
    Setting(name="conductor.gpu_layers", type="text", default="auto", help="layers of a local model on the GPU: auto, all or a number"),
    Setting(name="conductor.context", type="whole", default=8192, help="tokens of context for a local model"),
    Setting(name="conductor.threads", type="whole", default=0, help="threads of a local model; 0 takes one a physical core"),
    Setting(name="limits.steps", type="whole", default=5, help="most steps of a plan, 1 to 5"),
    Setting(name="limits.parallel", type="whole", default=8, help="most steps at the same time"),
    Setting(name="limits.attempts", type="whole", default=3, help="attempts of one worker at one step"),
    Setting(name="limits.recursion", type="whole", default=0, help="reviews by the conductor itself behind the plan"),
    Setting(name="limits.seconds", type="number", default=None, help="most seconds a run"),
    Setting(name="limits.cost", type="money", default=None, help="most US dollars a run"),
    Setting(name="limits.tokens", type="whole", default=None, help="most tokens a run, in and out"),
    Setting(name="limits.calls", type="whole", default=None, help="most worker calls a run"),
    Setting(name="patience.first", type="number", default=180.0, help="seconds to the first token of an attempt"),
    Setting(name="patience.idle", type="number", default=90.0, help="seconds between two tokens"),
    Setting(name="patience.total", type="number", default=900.0, help="seconds for one attempt"),
    Setting(name="output.progress", type="text", default="auto", choices=("auto", "tree", "plain", "none"),
            help="what is shown on stderr while a run goes on"),
    Setting(name="output.color", type="text", default="auto", choices=("auto", "always", "never"), help="colour on a terminal"),
    Setting(name="traces.keep", type="yes-no", default=True, help="store a trace of each run"),
)  # fmt: skip

BY_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in SETTINGS}


def setting(name: str) -> Setting:
    """The setting of this name. Raises `ConfigError`."""
    if name not in BY_NAME:
        raise ConfigError(f"there is no setting {name!r}", hint=f"known: {', '.join(BY_NAME)}")
    return BY_NAME[name]
