"""Hide secrets in messages, and detect files that contain some. Both use patterns, so they can miss secrets."""

from __future__ import annotations

import os
import re

_secrets: set[str] = set()

_NAMED = (
    r"(?:access[-_]?key(?:[-_]?(?:id|secret))?|secret\w*|passw(?:or)?d|(?:api|private)[-_]?key|credentials?|signature)"
)
_TOKEN = r"(?:access|auth|api|bearer|hf|hub|refresh|security|session|id)[-_ ]?token"
_KEYS = rf"(?:[\w-]*(?:{_NAMED}|{_TOKEN})|sig)"
_SHAPES = (
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bLTAI[A-Za-z0-9]{12,}|\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_\w{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[\w-]{30,}"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
)
_KEY_BLOCK = r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(_KEY_BLOCK, re.DOTALL), "***"),
    (re.compile(r"(://)[^\s'\"/@:]*:(?!\d+/)[^\s'\"]*@"), r"\1***@"),
    (re.compile(r"(://)[^\s'\"/@:]{16,}@"), r"\1***@"),
    (re.compile(rf"(?i)([?&][^=&\s]*(?:{_KEYS}|token|key)[^=&\s]*=)[^&\s'\"]+"), r"\1***"),
    (re.compile(r"(?i)(<\w*(?:AccessKeyId|Signature\w*|StringToSign\w*|SecretKey|SecurityToken)>)[^<]*"), r"\1***"),
    (re.compile(rf"(?i)(\b{_KEYS}['\"]?\s*[:=]\s*['\"]?)(?!\*\*\*)[^\s'\",;&<>)}}\]]{{6,}}"), r"\1***"),
    (re.compile(r"(?i)(\b(?:authorization|bearer)['\"]?[\s:=]+['\"]?(?:bearer |basic )?)[\w+/=.~-]{16,}"), r"\1***"),
    (re.compile(_SHAPES), "***"),
)  # fmt: skip

_VARIABLE = re.compile(r"SECRET|PASSWORD|PASSWD|(?:^|_)(?:TOKEN|API_KEY|ACCESS_KEY|ACCESS_KEY_ID)$")
_SECRET_NAMES = re.compile(
    r"(?i)credential|secret|passw|(?:private|api|access)[_-]?key|(^|[_.-])tokens?\.|^\.env|\.pem$"
)
_LITERAL = re.compile(rf"(?i)\b{_KEYS}['\"]?\s*[:=]\s*['\"][^'\"\s${{}}<>]{{8,}}['\"]")
_CALL = re.compile(
    r"\b(?:OSS|ODPS)\(\s*(?:\w+\s*=\s*)?['\"](?!<)[^'\"]{6,}['\"]\s*,\s*(?:\w+\s*=\s*)?['\"](?!<)[^'\"]{6,}"
)
_ADDRESS = re.compile(r"://[^\s'\"/@:]+:(?!\d+/)[^\s'\"/@$<]{4,}@")


def keep_secret(secret: str) -> None:
    """Register a secret that `redact` hides from now on; texts below 4 characters are ignored."""
    if len(secret) >= 4:
        _secrets.add(secret)


def redact(text: str) -> str:
    """Return a path or message with secrets replaced by `***`.

    Hidden are registered secrets, those of the environment, `scheme://key:secret@…`, signatures in the query of a URL,
    values after a name such as `secret_access_key=`, and texts in the format of keys of common services.
    """
    for secret in _known():
        text = text.replace(secret, "***")
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text


def holds_secret(name: str, text: str) -> bool:
    """Return whether a file of code or settings seems to contain a secret, judged by its name and its text."""
    if _SECRET_NAMES.search(name) or any(secret in text for secret in _known()):
        return True
    patterns = (_LITERAL, _CALL, _ADDRESS, re.compile(_SHAPES), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"))
    return any(pattern.search(text) for pattern in patterns)


def _known() -> set[str]:
    """Return the registered secrets, and those in the environment."""
    given = {value for name, value in os.environ.items() if len(value) >= 8 and _VARIABLE.search(name)}
    return _secrets | {value for value in given if not value.startswith("/")}
