"""API keys of providers: where they are stored, for which address, and reading them again.

    entry            a stored key: its provider, its address, its age; what can be a key and what cannot
    keyring_process  the child process that talks to the system's keyring, the only one that loads it
    keyring          asking that process, for a bounded time
    key_store        set, remove and read, over a list of the stored keys and the keyring

The list says what the keyring holds, so that a command that needs no stored key asks no keyring.
"""
