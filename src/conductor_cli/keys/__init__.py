"""API keys of providers: where they are stored, for which address, and reading them again.

`key_store` sets, removes and reads them, over a list of the stored keys and the system's keyring; `keyring_process` is
what a child process does that talks to the keyring, the only one that loads it. The list says what the keyring holds,
so that a command that needs no stored key asks no keyring.
"""
