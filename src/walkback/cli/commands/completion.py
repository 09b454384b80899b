"""Print a script that completes walkback's commands, options and names in bash, zsh or fish.

bash: walkback completion bash > ~/.local/share/bash-completion/completions/walkback
zsh:  walkback completion zsh > ~/.zfunc/_walkback   (with `fpath+=~/.zfunc; autoload -Uz compinit; compinit`)
fish: walkback completion fish > ~/.config/fish/completions/walkback.fish

The script is made from the commands' own options and from the installed methods, networks and studies: print it again
after an update.
"""

from __future__ import annotations

import argparse

from walkback.core.errors import EXIT_DONE

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")


def run(args: argparse.Namespace) -> int:
    from walkback.cli.completion_scripts import completion_script

    print(completion_script(args.shell), end="")
    return EXIT_DONE
