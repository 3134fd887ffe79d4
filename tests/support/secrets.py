"""Secrets of every kind that must never be kept, made anew each time so that none of them stands in a file."""

import base64
import json
import random
import string
from functools import cache

LETTERS = string.ascii_letters + string.digits


@cache
def planted(seed: int = 0) -> dict[str, tuple[str, str]]:
    """By kind: a text as it may stand in a conversation, and the part of it that must not be kept."""
    chance = random.Random(seed)

    def some(count: int, letters: str = LETTERS) -> str:
        # Not by chance without a digit, which no real key is.
        return "".join(chance.choice(letters) for _ in range(count - 2)) + "7" + chance.choice(letters)

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    digits, upper = string.hexdigits.lower()[:16], string.ascii_uppercase + "234567"
    kinds = {
        "openai": "sk-" + some(48),
        "openai project": "sk-proj-" + some(60, LETTERS + "_-"),
        "anthropic": "sk-ant-api03-" + some(80, LETTERS + "_-"),
        "openrouter": "sk-or-v1-" + some(64, digits),
        "deepseek": "sk-" + some(32, digits),
        "aws id": "AKIA" + some(16, upper),
        "aws session id": "ASIA" + some(16, upper),
        "github": "ghp_" + some(36),
        "github oauth": "gho_" + some(36),
        "github fine-grained": "github_pat_" + some(22) + "_" + some(59),
        "gitlab": "glpat-" + some(20, LETTERS + "_-"),
        "slack bot": f"xoxb-{some(11, string.digits)}-{some(12, string.digits)}-{some(24)}",
        "slack app": f"xapp-1-A{some(10, upper)}-{some(13, string.digits)}-{some(64, digits)}",
        "google": "AIza" + some(35, LETTERS + "_-"),
        "google oauth": "ya29." + some(60, LETTERS + "_-"),
        "hugging face": "hf_" + some(34),
        "stripe": "sk_live_" + some(24),
        "stripe restricted": "rk_live_" + some(24),
        "groq": "gsk_" + some(52),
        "sendgrid": f"SG.{some(22)}.{some(43)}",
        "npm": "npm_" + some(36),
        "jwt": f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': some(10)})}.{some(43)}",
    }
    found = {kind: (f"my key is {secret}, use it", secret) for kind, secret in kinds.items()}
    bare = {
        kind: some(count)
        for kind, count in (("aws", 40), ("azure", 32), ("bearer", 40), ("token", 30), ("short", 14), ("cookie", 32))
    }
    password = "h" + some(10) + "!x"
    pem = "\n".join(some(64) for _ in range(5))
    basic = base64.b64encode(f"admin:{password}".encode()).decode()
    found |= {
        "aws secret": (f"aws_secret_access_key = {bare['aws']}\n", bare["aws"]),
        "azure header": (f"api-key: {bare['azure']}", bare["azure"]),
        "azure storage": (f"AccountName=shop;AccountKey={some(86)}==;EndpointSuffix=x", ""),
        "bearer": (f"curl -H 'Authorization: Bearer {bare['bearer']}' http://host/", bare["bearer"]),
        "basic": (f"Authorization: Basic {basic}", basic),
        "url": (f"psql postgresql://admin:{password}@db.example.org:5432/shop", password),
        "json password": (json.dumps({"user": "kim", "password": password}), password),
        "json in json": (json.dumps({"body": json.dumps({"db_password": password})}), password),
        "environment": (f"export OPENAI_API_KEY={bare['short']}", bare["short"]),
        "query": (f"GET /v1/things?api_key={bare['azure']}&page=2", bare["azure"]),
        "toml": (f'client_secret = "{bare["short"]}"', bare["short"]),
        "yaml": (f"access_token: {bare['token']}", bare["token"]),
        "said": (f"the password is {password} and the user kim", password),
        "option": (f"mysql --user kim --password {password}", password),
        "cookie": (f"Cookie: session={bare['cookie']}; theme=dark", bare["cookie"]),
        "pem": (f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END RSA PRIVATE KEY-----", pem.splitlines()[2]),
        "pem in json": (json.dumps(f"-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----"), pem.splitlines()[3]),
    }
    text, _ = found["azure storage"]
    found["azure storage"] = (text, text.split("AccountKey=")[1].split("==")[0])
    return found
