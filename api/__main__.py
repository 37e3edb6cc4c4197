"""The API as a program: what ``palaver api`` becomes."""

from __future__ import annotations

from palaver.processes.garbage import load_uncollected

if __name__ == "__main__":
    load_uncollected()
    # Not above: this is what it loads.
    from .serving import main

    main()
