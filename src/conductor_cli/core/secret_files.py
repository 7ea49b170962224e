"""Which files look like secrets: by their names, and by a private key in their text. Pure.

It decides what a directory or a pattern attaches. Names are compared without case, as tools that
look for secrets in repositories do (gitrob's and shhgit's signatures, the path rules of gitleaks,
GitHub's templates of `.gitignore`). What a text says is searched for private keys only: it is no
scanner for tokens and passwords.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache
from typing import Final

_KEY_STORES: Final = """
    id_rsa id_rsa[-_.]* id_dsa id_dsa[-_.]* id_ecdsa id_ecdsa[-_.]* id_ed25519 id_ed25519[-_.]* \
ssh_host_*_key
    *.p8 *.p12 *.pfx *.pkcs12 *.pk8 *.pvk *.jks *.jceks *.bks *.keystore *.keytab *.keychain \
*.keychain-db
    *.ppk *.kdb *.kdbx *.ovpn *.agekey *.secring wallet.dat
"""

_KEY_TEXTS: Final = "*.pem *.key *.asc *.gpg"
"""Files that hold a private key as often as a certificate, a public key or a signature."""

_ACCOUNTS: Final = """
    .env .env.* .env-* .env_* *.env *.env.* .envrc
    .npmrc .yarnrc .yarnrc.yml .netrc _netrc .pypirc .git-credentials .htpasswd htpasswd .pgpass \
pgpass.conf
    .my.cnf .mylogin.cnf .s3cfg .boto .dockercfg .dockerconfigjson .vault-token .terraformrc \
terraform.rc
    .sentryclirc .databrickscfg .ftpconfig .remote-sync.json sftp-config.json rclone.conf ngrok.yml
    filezilla.xml sitemanager.xml recentservers.xml .erlang.cookie
    shadow gshadow .*_history fish_history consolehost_history.txt
    kubeconfig kubeconfig[-_]* kubeconfig.y*ml kubeconfig.json *.kubeconfig *[-_.]kubeconfig \
*[-_.]kubeconfig.y*ml
    *.tfstate *.tfstate.* *.tfvars *.tfvars.json *.publishsettings local.settings.json
    credentials *[-_.]credentials auth.json token.json rootkey.csv *accesskeys.csv
    service-account*.json service_account*.json serviceaccount*.json *-firebase-adminsdk-*.json
    client_secret*.json
"""

_TOLD_BY_FORMAT: Final = re.compile(
    r"(?:.*[-_. ])?(?:credentials?|secrets?|passwords?)(?:[-_. \d].*)?"
    r"\.(?:json|ya?ml|toml|ini|cfg|conf|properties|xml|csv|txt|env)"
)
"""`secrets.yaml` and `credentials-prod.json` hold values; `secrets.py` and `credentials.md` are
about them.
"""

_NEXT_WORD: Final = re.compile(r"(?<=[a-z\d])(?=(?:Credential|Secret|Password)s?(?:[^a-z]|$))")
"""Where such a word begins in a name whose words have nothing between them: `clientSecret.json`."""

_BACKUP: Final = re.compile(
    r"(?:~|\.(?:bak|backup|copy|old|orig|save)\d*|\.dpkg-[a-z]+|\.rpm(?:new|orig|save))+$",
    re.IGNORECASE,
)
_COPY: Final = re.compile(
    r"(?: ?\(\d+\)| - copy(?: \(\d+\))?| copy(?: \d+)?)(?=\.[^.]*$|$)", re.IGNORECASE
)
"""What editors, packages, browsers and desktops add to the name of a file of which they make
another one: `secrets.yaml~`, `.npmrc.bak`, `credentials (1).json`, `credentials copy.json`.
"""

_TEMPLATE: Final = re.compile(r"(?:^|[-_.])(?:example|sample|template|tmpl|dist)(?:[-_.]|$)")
"""Names of files that show which values are needed: `.env.example`. They are made to be published;
GitHub's template of `.gitignore` for Node leaves out `.env.*` and keeps `.env.example`.
"""

_IN_DIRECTORIES: Final = frozenset(
    {
        (".kube", "config"),
        (".docker", "config.json"),
        (".aws", "config"),
        (".m2", "settings.xml"),
        (".vscode", "sftp.json"),
        ("doctl", "config.yaml"),
        ("gh", "hosts.yml"),
        ("huggingface", "token"),
    }
)


_PRIVATE_KEYS: Final = (
    re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----(?![\"'`)\]},;:<])"),
    re.compile(r"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----(?![\"'`)\]},;:<])"),
    re.compile(r"PuTTY-User-Key-File-\d:"),
    re.compile(r"AGE-SECRET-KEY-1[0-9A-Z]{20}"),
)
"""How private keys begin. Where a quote ends right behind a header, a program looks for such
headers. Each expression begins with letters, which are found quickly in a long text.
"""

_PUBLIC: Final = re.compile(
    r"-----BEGIN (?:[A-Z0-9 ]{0,60} )?"
    r"(?:CERTIFICATE(?: REQUEST)?|PUBLIC KEY(?: BLOCK)?|SIGNATURE|SIGNED "
    r"MESSAGE|CRL|PARAMETERS|PKCS7|CMS)-----"
)


def is_secret_name(path: str) -> bool:
    """Return whether a file looks like a secret by its name, or by that of its directory.

    A path has slashes. A copy of a file is called as that is, and a little more.
    """
    above, _, name = path.rpartition("/")
    directory = above.rpartition("/")[2].lower()
    names = (name, _name_of_original(name))
    return any(_is_called_as_secret(directory, called) for called in dict.fromkeys(names))


def _name_of_original(name: str) -> str:
    """Return the name of the file that one with this name may be a copy of; else the same name."""
    return _COPY.sub("", _BACKUP.sub("", name.strip("#")))


def _is_called_as_secret(directory: str, name: str) -> bool:
    """Return whether a file in a directory, in small letters, looks like a secret by this name."""
    lower = name.lower()
    if (directory, lower) in _IN_DIRECTORIES:
        return True
    if _matches_any(_KEY_STORES, lower):
        return not lower.endswith(".pub")
    words = _NEXT_WORD.sub("-", name).lower()
    is_account = _matches_any(_ACCOUNTS, lower) or bool(_TOLD_BY_FORMAT.fullmatch(words))
    return is_account and not _TEMPLATE.search(lower)


def is_secret_text(path: str, text: str) -> bool:
    """Return whether the text of a file has a private key.

    A file that is called as keys and certificates are (`server.pem`) counts as a secret unless its
    text is public, as a certificate is.
    """
    if any(header.search(text) for header in _PRIVATE_KEYS):
        return True
    name = _name_of_original(path.rpartition("/")[2]).lower()
    return _matches_any(_KEY_TEXTS, name) and not _PUBLIC.search(text)


def _matches_any(patterns: str, name: str) -> bool:
    return _expression_of(patterns).match(name) is not None


@cache
def _expression_of(patterns: str) -> re.Pattern[str]:
    """Return one expression of many patterns, made when a directory is first attached."""
    return re.compile("|".join(translate(pattern) for pattern in patterns.split()))
