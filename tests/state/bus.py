"""A session bus of its own.

GNOME Keyring, or a service that never answers, in the place of the keyring on it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAME = "org.freedesktop.secrets"

CONFIG = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""
"""As a session bus is, but it starts no service by itself."""

WEDGED = """\
import sys
from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection

connection = open_dbus_connection()
bus = DBusAddress("/org/freedesktop/DBus", bus_name="org.freedesktop.DBus", \
interface="org.freedesktop.DBus")
connection.send_and_get_reply(new_method_call(bus, "RequestName", "su", \
("org.freedesktop.secrets", 4)))
print("ready", flush=True)
sys.stdin.read()  # it is there, and answers nothing
"""


@contextmanager
def bus(directory: Path) -> Iterator[str]:
    """A bus that nobody else is on; its address."""
    if shutil.which("dbus-daemon") is None:
        pytest.skip("dbus-daemon is not installed (Debian: dbus)")
    config = directory / "bus.conf"
    config.write_text(CONFIG)
    command = [
        "dbus-daemon",
        f"--config-file={config}",
        "--nofork",
        "--nopidfile",
        "--print-address=1",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as daemon:
        try:
            assert daemon.stdout is not None
            yield daemon.stdout.readline().strip()
        finally:
            daemon.terminate()


def on(address: str) -> dict[str, str]:
    """The environment of a process that uses the bus at this address."""
    return {**os.environ, "DBUS_SESSION_BUS_ADDRESS": address}


@contextmanager
def gnome_keyring(address: str, home: Path) -> Iterator[None]:
    """GNOME Keyring on the bus, its login keyring made and unlocked."""
    if shutil.which("gnome-keyring-daemon") is None:
        pytest.skip("gnome-keyring-daemon is not installed (Debian: gnome-keyring)")
    (home / "runtime").mkdir(mode=0o700, exist_ok=True)
    command = ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=on(address)
    ) as daemon:
        try:
            assert daemon.stdin is not None
            daemon.stdin.write(b"the password of a test")
            daemon.stdin.close()
            wait_for_owner(address)
            yield
        finally:
            daemon.terminate()


@contextmanager
def wedged(address: str) -> Iterator[None]:
    """A service that has the keyring's name and answers nothing."""
    command = [sys.executable, "-c", WEDGED]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=on(address), text=True) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        try:
            assert service.stdout.readline() == "ready\n"
            yield
        finally:
            service.stdin.close()


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A session bus without a keyring for this process and its children; the library is real."""
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    with bus(tmp_path) as bus_address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus_address)
        # A busy machine needs long to start the child
        monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "60")
        yield bus_address


@pytest.fixture
def keyring(address: str, home: Path) -> Iterator[str]:
    """The same with GNOME Keyring on it, unlocked."""
    with gnome_keyring(address, home):
        yield address


def wait_for_owner(address: str) -> None:
    """Wait until somebody answers for the keyring."""
    from jeepney import MatchRule, message_bus
    from jeepney.io.blocking import Proxy, open_dbus_connection

    rule = MatchRule(type="signal", interface="org.freedesktop.DBus", member="NameOwnerChanged")
    with closing(open_dbus_connection(address)) as connection, connection.filter(rule) as signals:
        proxy = Proxy(message_bus, connection, timeout=20)
        proxy.AddMatch(rule)
        while not proxy.NameHasOwner(NAME)[0]:
            connection.recv_until_filtered(signals, timeout=20)


def lock(address: str) -> None:
    """Lock the default keyring, as a screen saver or its owner may."""
    script = "import secretstorage as s; s.get_default_collection(s.dbus_init()).lock()"
    subprocess.run([sys.executable, "-c", script], env=on(address), check=True)


def items(address: str) -> list[Any]:
    """What the keyring holds of ours: provider and secret, read past our own code."""
    script = (
        "import json, secretstorage as s; c = s.get_default_collection(s.dbus_init());"
        "print(json.dumps([[i.get_attributes(), i.get_secret().decode()] for i in "
        "c.get_all_items()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=on(address), check=True, stdout=subprocess.PIPE
    )
    return sorted(
        [attributes["username"], secret] for attributes, secret in json.loads(done.stdout)
    )


def own_backend(name: str) -> Mapping[str, str]:
    """The environment in which `backends.py` beside this file is the system's keyring."""
    path = os.pathsep.join(part for part in (str(HERE), os.environ.get("PYTHONPATH", "")) if part)
    return {"PYTHON_KEYRING_BACKEND": f"backends.{name}", "PYTHONPATH": path}


def use_backend(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make one of `backends.py` the system's keyring, for this process and its children."""
    for variable, value in own_backend(name).items():
        monkeypatch.setenv(variable, value)
