"""The classifier of dictionary definitions, trained on a dictionary of a few dozen entries."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import wordnet_classifier as sample
from fetch_minilm import fetch

import edgebert

ANIMALS = "horse cow pig hen goose trout eagle spider whale lizard".split()
FOODS = "bread soup cheese pie salad jam butter noodle stew cake".split()
KINDS = ("large", "small", "common", "wild", "rare", "young", "old", "black", "white", "northern")


def write_dictionary(folder: Path) -> list[sample.Definition]:
    """Write definitions in the form of WordNet's files, each with an example behind, and return them."""
    animals = [(f"a {kind} {name} that lives on farms", 5) for name in ANIMALS for kind in KINDS]
    foods = [(f"{kind} {name} eaten at dinner", 13) for name in FOODS for kind in KINDS]
    folder.mkdir()
    for file in sample.FILES:
        (folder / file).write_text("  1 This software and database\n", encoding="utf-8")
    lines = [f'00001740 {label:02} n 01 x 0 000 | {text}; "an example"  \n' for text, label in animals + foods]
    with (folder / "data.noun").open("a", encoding="utf-8") as stream:
        stream.writelines(lines)
    return animals + foods


def test_definitions_are_read_and_held_out(tmp_path: Path) -> None:
    written = write_dictionary(tmp_path / "dict")
    definitions = sample.read_definitions(tmp_path / "dict")
    assert definitions == written
    train, test = sample.split(definitions)
    assert sorted(train + test) == sorted(written)
    held_out = [item for item in written if int(hashlib.sha256(item[0].encode()).hexdigest()[:8], 16) % 20 == 0]
    assert test == held_out
    assert 2 <= len(test) <= 20
    assert (sample.CLASSES[5], sample.CLASSES[13], len(sample.CLASSES)) == ("noun.animal", "noun.food", 45)


def test_naive_bayes_tells_animals_from_food(tmp_path: Path) -> None:
    train, test = sample.split(write_dictionary(tmp_path / "dict"))
    assert sample.naive_bayes(train, test).tolist() == [label for _, label in test]


@pytest.mark.network
@pytest.mark.slow
def test_the_whole_sample(tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert pytestconfig.cache is not None
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "minilm").symlink_to(fetch(pytestconfig.cache.mkdir("edgebert") / "minilm"))
    write_dictionary(tmp_path / "dict")
    sample.main(folder, wordnet=tmp_path / "dict")
    printed = capsys.readouterr().out
    assert printed.count("100.0%") >= 2
    model = edgebert.Classifier.load(folder / "classifier.int8")
    duck, porridge = model.classify(["a wild duck that lives on farms", "hot porridge eaten at dinner"])
    assert (duck.label, porridge.label) == ("noun.animal", "noun.food")
