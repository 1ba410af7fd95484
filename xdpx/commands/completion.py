"""`x-train --completion bash`: print a shell script that completes commands, keys, registered names and config files.

The script is written from the frozen catalogue, so completing starts no Python.
"""

from __future__ import annotations

import shlex

from xdpx.commands.command_line import FLAGS, WORD_COMMANDS
from xdpx.config import catalogue
from xdpx.config.catalogue import declarations_by_key, reachable_entries
from xdpx.config.config_files import SUFFIXES
from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.value_types import Choice, read_type

SHELLS = ("bash", "zsh", "fish")


def main(shell: str) -> int:
    """Print the completion script for a shell.

    Raises:
        ConfigError: the shell is not supported.
    """
    if shell not in SHELLS:
        remedy = did_you_mean(shell, SHELLS, 'Write e.g. eval "$(x-train --completion bash)".')
        raise ConfigError("command line", [Fault("--completion", f"is '{shell}', not one of bash, zsh, fish.", remedy)])
    print(_fish() if shell == "fish" else _bash(zsh=shell == "zsh"))
    return 0


def commands() -> dict[str, dict[str, tuple[list[str], str]]]:
    """Return {command: {key: (values to offer, description)}} for the commands that take a config."""
    return {name: _keys(name) for name in catalogue.names("command") if " " not in name}


def _keys(command: str) -> dict[str, tuple[list[str], str]]:
    found = {}
    for key, places in declarations_by_key(reachable_entries(command)).items():
        item = places[0][1]
        values = catalogue.names(item.registry) if item.registry else _choices(item.type)
        found[key] = values, item.doc
    return found


def _choices(type_text: str) -> list[str]:
    if "bool" in type_text:
        return ["true", "false"]
    kind = read_type(type_text)
    return [option for option in kind.options if isinstance(option, str)] if isinstance(kind, Choice) else []


def _own_words() -> dict[str, list[str]]:
    """Return the words offered after the commands that parse their own words, in addition to files."""
    from xdpx.commands.board import FLAGS as BOARD_FLAGS
    from xdpx.commands.first_run import WISHES
    from xdpx.commands.io import VERBS
    from xdpx.commands.script import SHIPPED
    from xdpx.commands.server import FLAGS as SERVER_FLAGS
    from xdpx.commands.submit_line import ACTIONS, OWN_FLAGS
    from xdpx.launch.submission import Resources

    flags = [f"--{name.replace('_', '-')}" for name in (*OWN_FLAGS, *Resources.model_fields)]
    wishes = [f"{key}=" for key in (*WISHES, "save_dir", "model", "dev", "test")]
    found = {"x-run": wishes, "x-init": [*wishes, "--list"], "x-io": list(VERBS), "x-script": list(SHIPPED)}
    found |= {"x-board": list(BOARD_FLAGS), "x-serve": list(SERVER_FLAGS)}
    found |= {"x-check": [f"{key}=" for key in ("page", "rows", "noise_rows", "measure")]}
    return found | {"x-submit": [*ACTIONS, *flags]}


def _bash(*, zsh: bool) -> str:
    tables = commands()
    values = {key: values for keys in tables.values() for key, (values, _) in keys.items() if values}
    words = {name: [f"{key}=" for key in keys] for name, keys in tables.items()} | _own_words()
    blanks = {
        "@FLAGS@": " ".join(FLAGS), "@COMMANDS@": " ".join(tables), "@ANY@": " ".join(WORD_COMMANDS),
        "@ENDINGS@": "|".join(suffix.removeprefix(".") for suffix in SUFFIXES),
    }  # fmt: skip
    body = _BODY
    for blank, text in blanks.items():
        body = body.replace(blank, text)
    lines = [
        *(["autoload -U +X bashcompinit && bashcompinit"] if zsh else []),
        '_xdpx_words() { case "$1" in',
        *(f"  {name}) echo {shlex.quote(' '.join(each))};;" for name, each in words.items()),
        "esac; }",
        '_xdpx_values() { case "$1" in',
        *(f"  {key}) echo {shlex.quote(' '.join(each))};;" for key, each in sorted(values.items())),
        "esac; }",
        f"_xdpx() {{\n{body}}}",
        f"complete -o nospace -F _xdpx {' '.join(words)}",
    ]
    return "\n".join(lines)


_BODY = r"""  local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"
  local key="" head="" word command reply
  command="${COMP_WORDS[0]##*/}"
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ -n "$(_xdpx_words "$word")" ]] && command="$word"
  done
  if [[ "$cur" == "=" ]]; then key="$before"; cur=""
  elif [[ "$before" == "=" ]]; then key="${COMP_WORDS[COMP_CWORD-2]}"
  elif [[ "$cur" == *=* ]]; then key="${cur%%=*}"; head="$key="; cur="${cur#*=}"
  fi
  COMPREPLY=()
  if [[ -n "$key" ]]; then
    reply="$(_xdpx_values "$key")"
    if [[ -n "$reply" ]]; then
      for word in $(compgen -W "$reply" -- "$cur"); do COMPREPLY+=("$head$word "); done
    else
      for word in $(compgen -f -- "$cur"); do COMPREPLY+=("$head$word"); done
    fi
    return
  fi
  case "$cur" in
    --*) for word in $(compgen -W "@FLAGS@" -- "$cur"); do COMPREPLY+=("$word "); done;;
    x-*) for word in $(compgen -W "@COMMANDS@" -- "$cur"); do COMPREPLY+=("$word "); done;;
  esac
  COMPREPLY+=($(compgen -W "$(_xdpx_words "$command")" -- "$cur"))
  for word in $(compgen -f -- "$cur"); do
    if [[ -d "$word" ]]; then COMPREPLY+=("$word/")
    elif [[ " @ANY@ " == *" $command "* ]]; then COMPREPLY+=("$word ")
    elif [[ "$word" =~ \.(@ENDINGS@)$ ]]; then COMPREPLY+=("$word ")
    fi
  done
"""


def _fish() -> str:
    lines = []
    for name, keys in commands().items():
        lines += [f"complete -c {name} -l {flag[2:]} -d {shlex.quote(doc)}" for flag, doc in FLAGS.items()]
        for key, (values, doc) in keys.items():
            meaning = shlex.quote(doc.partition(". ")[0])
            lines += [
                f"complete -c {name} -a {shlex.quote(f'{key}={value}')} -d {meaning}" for value in values or ("",)
            ]
    own = _own_words()
    lines += [f"complete -c {name} -a {shlex.quote(' '.join(own[name]))}" for name in WORD_COMMANDS]
    return "\n".join(lines)
