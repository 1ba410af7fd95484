from __future__ import annotations

import pytest

from xdpx.utils.redaction import holds_secret, redact

SECRET = "Zm9vYmFyYmF6cXV4MTIz"


@pytest.mark.parametrize(
    "text",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"postgresql://user:{SECRET}@host:5432/db",
        f"https://user:a/b@{SECRET}@host/x",
        f"https://{SECRET}@github.com/x",
        f"https://b.s3/x?X-Amz-Signature={SECRET}&a=1",
        f"https://b.oss/x?OSSAccessKeyId=a&Signature={SECRET}",
        f"aws_secret_access_key = {SECRET}",
        f"{{'access_key_secret': '{SECRET}'}}",
        f"SecretAccessKey={SECRET}, x",
        f"password: {SECRET}",
        f"api-key={SECRET}",
        f"hub_token='{SECRET}'",
        f"Authorization: Bearer {SECRET}",
        f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId>",
        f"<SignatureProvided>{SECRET}</SignatureProvided>",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"hf_{SECRET}",
        f"ghp_{SECRET}{SECRET}",
    ],
)
def test_a_secret_is_hidden_wherever_it_stands(text: str) -> None:
    assert SECRET not in redact(f"It failed: {text} and so on")


def test_keys_of_known_shape_and_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "AKIA" not in redact("the key AKIAIOSFODNN7EXAMPLE is unknown")
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "only-by-its-name")
    assert redact("signed with only-by-its-name") == "signed with ***"


@pytest.mark.parametrize(
    "text",
    [
        "dev: 8 samples of 8 lines; 24 tokens, 0.00% of them unknown",
        "http://127.0.0.1:9/base.hjson: gave up after 4 tries",
        "http://127.0.0.1:9/model@v1.hjson",
        "pad_token: [PAD], mask_token=<extra_id_0>",
        "Vocabulary: 29 tokens; sentinels 12345678",
        "oss://elsewhere: this bucket is not in region_bucket of your OSS credentials (there: none)",
        "checkpoint-100.pt: sha256 3f786850e387550fdab836ed7e6dc881de23001b",
        "write to someone@example.org about key=value pairs",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("oss_credentials.py", ""),
        ("my_secrets.py", ""),
        ("a.py", 'io.set_io(OSS("LTAI-or-else", "another-secret", []))'),
        ("a.py", "AWS_SECRET_ACCESS_KEY = 'abcdefghijkl'"),
        ("a.py", 'token = "hf_abcdefghijklmnopqrst"'),
        ("a.hjson", "data_source: postgresql://me:hidden@host/db"),
        ("a.py", "-----BEGIN PRIVATE KEY-----"),
    ],
)
def test_files_that_look_as_if_they_held_a_secret_are_told(name: str, text: str) -> None:
    assert holds_secret(name, text)


@pytest.mark.parametrize(
    "text",
    [
        'pad_token = "[PAD]"\nmask_token = "<extra_id_0>"',
        'io.set_io(OSS(os.environ["OSS_ACCESS_KEY_ID"], os.environ["OSS_ACCESS_KEY_SECRET"], [["r", "b"]]))',
        'io.set_io(OSS("<access_key_id>", "<access_key_secret>", []))',
        "password = os.environ['PASSWORD']",
        "data_source: postgresql://host:5432/db",
    ],
)
def test_code_without_secrets_is_kept(text: str) -> None:
    assert not holds_secret("mine.py", text)
