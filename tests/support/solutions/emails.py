"""Solves the email validator."""

import re

_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"({_LABEL}\.)+[A-Za-z]{{2,63}}")


def check(address: str) -> dict[str, object]:
    if not isinstance(address, str):
        raise TypeError("an address is a str")
    address = address.strip()
    reason = _reason(address)
    local, _, domain = address.partition("@")
    return {"valid": not reason, "reason": reason, "normalized": None if reason else f"{local}@{domain.lower()}"}


def _reason(address: str) -> str:
    if len(address) > 254:
        return "length"
    if address.count("@") != 1:
        return "at"
    local, domain = address.split("@")
    if len(local) > 64 or not _LOCAL.fullmatch(local):
        return "local"
    return "" if _DOMAIN.fullmatch(domain) else "domain"
