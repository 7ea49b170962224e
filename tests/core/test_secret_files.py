"""Which names and texts look like secrets."""

from __future__ import annotations

import pytest

from conductor_cli.core.secret_files import is_secret_name, is_secret_text

SECRET = """
    id_rsa id_ed25519_sk ID_RSA id_dsa.bak ssh_host_rsa_key key.p12 a.pfx a.jks a.keystore
    a.ppk a.kdbx vpn.ovpn AuthKey_1.p8 .env .env.production .env-prod prod.env prod.env.bak
    .envrc .npmrc .netrc _netrc .pypirc .git-credentials .htpasswd htpasswd .pgpass .my.cnf
    .dockercfg kubeconfig kubeconfig-prod prod-kubeconfig.yaml terraform.tfstate
    terraform.tfstate.1.backup x.tfvars credentials credentials.json google-credentials.json
    credentials_prod.csv service-account.json service_account-1.json
    app-firebase-adminsdk-x1.json client_secret_12.json secrets.yaml secrets.prod.yml
    secret.json my-secrets.toml passwords.txt user_accessKeys.csv auth.json local.settings.json
    .bash_history shadow .kube/config .docker/config.json .aws/credentials
    id_rsa~ .env~ prod.env~ .npmrc.bak .netrc.old kubeconfig.orig secrets.yaml.bak2 x.tfvars.save
    #secrets.yaml# credentials.json.rpmsave credentials(1).json CREDENTIALS.JSON.OLD
    clientSecret.json appSecrets.yaml DbPasswords.txt awsCredentials2.json
    sftp-config.json rclone.conf fish_history gh/hosts.yml .m2/settings.xml .vscode/sftp.json
"""
WITH_SPACES = """
    credentials (1).json
    credentials copy.json
    Credentials - Copy (2).json
    service-account copy 3.json
    token (2).json
    my secrets.yaml
    Secrets of production.txt
    id_rsa copy
    key (1).p12
"""
ORDINARY = """
    id_rsa.pub id_ed25519.pub server.crt .env.example .env.sample .env.template .env.dist
    example.env secrets.example.yaml vite-env.d.ts environment.py secrets.py secret_files.py
    credentials.md credentials.go test_passwords.py tokenizer.json secretary.json config
    docker/config.json package.json keys.py history.txt kubeconfig.go
    secrets.py~ credentials.md.bak README.md.orig secrets.example.yaml.old
    PasswordField.xml passwordStrength.json SecretsManager.yaml hosts.yml settings.xml ~ .bak ##
"""


@pytest.mark.parametrize("name", [*SECRET.split(), *WITH_SPACES.strip().split("\n    ")])
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret_name(f"/home/a/{name}")


@pytest.mark.parametrize("name", ORDINARY.split())
def test_what_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert not is_secret_name(f"/home/a/{name}")


@pytest.mark.parametrize(
    ("name", "text", "secret"),
    [
        ("a.txt", "-----BEGIN RSA PRIVATE KEY-----\nMIIE", True),
        ("a.txt", "x\n-----BEGIN ENCRYPTED PRIVATE KEY-----\r\nMIIE", True),
        ("a.json", '{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE', True),
        ("a.yaml", "key: -----BEGIN EC PRIVATE KEY----- MIIE", True),
        ("a.txt", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOY", True),
        ("a.txt", "PuTTY-User-Key-File-3: ssh-ed25519", True),
        ("a.txt", "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQ", True),
        ("a.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----BEGIN PRIVATE KEY-----\nMIIE", True),
        ("a.txt", "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: x", True),
        ("a.pem", "whatever", True),
        ("a.pem.bak", "whatever", True),
        ("a.key (1)", "whatever", True),
        ("a.pem", "-----BEGIN CERTIFICATE-----\nMIIB", False),
        ("a.key", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n", False),
        ("a.asc", "-----BEGIN PGP SIGNATURE-----\n", False),
        ("a.py", 'if "-----BEGIN PRIVATE KEY-----" in text:', False),
        ("a.md", "Keys begin with `-----BEGIN PRIVATE KEY-----`.", False),
        ("a.txt", "a PRIVATE KEY", False),
    ],
)
def test_a_text_with_a_private_key_is_a_secret(name: str, text: str, secret: bool) -> None:
    assert is_secret_text(name, text) == secret
