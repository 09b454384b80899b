"""Completion scripts for shells, made from the parsers of the commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from walkback.cli.main import COMMANDS, parser_of

_CATALOG_OF_OPTION = {"--methods": "methods", "--method": "methods", "--arch": "archs", "--data": "data"}
"""Options whose values are names from a catalog."""
_CATALOGS_OF_COMMAND = {"study": "studies", "bench": "benches"}
"""Commands whose arguments are names from a catalog, files aside."""


@dataclass(frozen=True)
class Command:
    """What can be completed after a command."""

    summary: str
    options: dict[str, str] = field(default_factory=dict)
    """By option, its help."""
    values: dict[str, list[str]] = field(default_factory=dict)
    """By option, the words it takes."""
    words: list[str] = field(default_factory=list)
    """The words that the command takes as arguments."""


def completion_script(shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](_commands())


def _commands() -> dict[str, Command]:
    catalogs = _catalogs()
    return {entry.name: _command(entry.name, entry.summary, catalogs) for entry in COMMANDS.entries()}


def _catalogs() -> dict[str, list[str]]:
    from walkback.cli.commands.ls import catalog_names

    return {name: catalog_names(name) for name in ("methods", "archs", "data", "diagnostics", "studies", "benches")}


def _command(name: str, summary: str, catalogs: dict[str, list[str]]) -> Command:
    found = Command(summary)
    for action in parser_of(name)._actions:
        choices = [str(choice) for choice in action.choices or ()]
        if not action.option_strings:
            found.words.extend(choices)
        for option in action.option_strings:
            if option.startswith("--"):
                found.options[option] = " ".join((action.help or "").split())
                values = choices or catalogs.get(_CATALOG_OF_OPTION.get(option, ""), [])
                if values:
                    found.values[option] = values
    if name == "ls":
        found.words.extend([*catalogs, "runs", *(word for words in catalogs.values() for word in words)])
    found.words.extend(catalogs.get(_CATALOGS_OF_COMMAND.get(name, ""), []))
    return found


def _bash(commands: dict[str, Command]) -> str:
    cases = []
    for name, command in commands.items():
        inner = [
            f"      {option}) words={shlex.quote(' '.join(values))} ;;" for option, values in command.values.items()
        ]
        cases += [f"    {name})", f"      options={shlex.quote(' '.join(command.options))}"]
        cases += ["      case $option in", *(f"  {line}" for line in inner)]
        cases += [f"        *) words={shlex.quote(' '.join(command.words))} ;;", "      esac ;;"]
    listed = shlex.quote(" ".join([*commands, "--help", "--version"]))
    return "\n".join(
        [
            "# Completion of walkback for bash. Where nothing is offered, bash completes file names.",
            "_walkback() {",
            "  local word=${COMP_WORDS[COMP_CWORD]} option= options= words= at",
            "  for ((at = COMP_CWORD - 1; at > 1; at--)); do",
            "    # The option whose values are being typed.",
            "    if [[ ${COMP_WORDS[at]} == --* ]]; then option=${COMP_WORDS[at]}; break; fi",
            "  done",
            "  if ((COMP_CWORD == 1)); then",
            f"    words={listed}",
            "  else case ${COMP_WORDS[1]} in",
            *cases,
            "    esac",
            "  fi",
            "  if [[ $word == -* ]]; then words=${options:-$words}; fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _walkback walkback",
            "",
        ]
    )


def _zsh(commands: dict[str, Command]) -> str:
    cases = []
    for name, command in commands.items():
        specs = [f"'{_zsh_option(option, text, command)}'" for option, text in command.options.items()]
        arguments = f"'*:argument:({' '.join(command.words)})'" if command.words else "'*:file:_files'"
        cases += [f"    {name}) _arguments {' '.join([*specs, arguments])} ;;"]
    described = " ".join(_zsh_quote(f"{name}:{command.summary}") for name, command in commands.items())
    return "\n".join(
        [
            "#compdef walkback",
            "# Completion of walkback for zsh.",
            "_walkback() {",
            "  local -a commands",
            f"  commands=({described})",
            "  if ((CURRENT == 2)); then",
            "    _describe command commands",
            "    return",
            "  fi",
            "  shift words",
            "  ((CURRENT--))",
            "  case $words[1] in",
            *cases,
            "  esac",
            "}",
            'if [[ $funcstack[1] == _walkback ]]; then _walkback "$@"; else compdef _walkback walkback; fi',
            "",
        ]
    )


def _zsh_option(option: str, text: str, command: Command) -> str:
    for letter in "\\[]:":
        text = text.replace(letter, f"\\{letter}")
    spec = f"{option}[{text}]"
    if option in command.values:
        spec += f":value:({' '.join(command.values[option])})"
    return spec.replace("'", "'\\''")


def _zsh_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(commands: dict[str, Command]) -> str:
    lines = ["# Completion of walkback for fish.", "complete -c walkback -n __fish_use_subcommand -f"]
    for name, command in commands.items():
        lines.append(f"complete -c walkback -n __fish_use_subcommand -a {name} -d {_fish_quote(command.summary)}")
        here = _fish_quote(f"__fish_seen_subcommand_from {name}")
        if command.words:
            lines.append(f"complete -c walkback -n {here} -a {_fish_quote(' '.join(command.words))}")
        for option, text in command.options.items():
            values = command.values.get(option)
            given = f" -x -a {_fish_quote(' '.join(values))}" if values else ""
            lines.append(f"complete -c walkback -n {here} -l {option[2:]} -d {_fish_quote(text)}{given}")
    return "\n".join([*lines, ""])


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
