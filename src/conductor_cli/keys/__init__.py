"""Keys of providers: where they are kept, for which address, and getting them from there.

    entry       a kept key: its provider, its address, its age; what can be a key and what cannot
    book        the list of kept keys, a file; also of keys that are kept in it, on the user's own word
    child       the process that talks to the system's keyring, the only one that loads it
    keyring     asking that process, for a bounded time
    safe        set, remove and read, over book and keyring
    probe       whether the keyring keeps what it is given

The list says what the keyring holds, so that a command that needs no stored key asks no keyring.
"""
