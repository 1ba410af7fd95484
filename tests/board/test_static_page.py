import base64
import hashlib
import json
import re

import pytest

from xdpx.board.static_page import page_of


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_holds_runs_of_every_door_and_fetches_nothing(root):
    page = page_of([str(root / name) for name in ("sweep/run0", "sweep/run1", "hf", "<script>alert(1)", "damaged")])
    data = data_of(page)
    assert [row["name"] for row in data["runs"]["rows"]] == ["run0", "run1", "hf", "<script>alert(1)", "damaged"]
    assert len(data["logs"]) == 5
    assert "src=" not in re.sub(r"<script[^>]*>.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)
    assert "connect-src" not in page[:2000]
    first = data["runs"]["rows"][0]["id"]
    assert data["predictions"][first]["predictions.tsv"]["errors"] == 41
    assert data["texts"][first]["log.txt"]["text"].endswith("| step 19999\n")


def test_nothing_that_a_folder_is_called_ends_the_script_it_stands_in(root):
    page = page_of([str(root / "<script>alert(1)")])
    assert "<script>alert(1)" not in page
    assert page.count("</script>") == page.count("<script")


def test_the_policy_names_the_hash_of_every_script(root):
    page = page_of([str(root / "sweep" / "run0")])
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 8
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in page


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        page_of([str(tmp_path / "zork")])
