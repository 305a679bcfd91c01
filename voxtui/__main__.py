"""Where `voxtui` begins: Ctrl-C is quiet from the first moment."""

import sys


def main() -> None:
    try:
        from voxtui.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
