"""Special tokens typed in a text are characters; with ``special_tokens=True`` they are those of transformers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from edgebert_runtime import (
    Answerer,
    Bundle,
    Classifier,
    Embedder,
    Generator,
    MaskFiller,
    MultipleChoice,
    Reranker,
    Tagger,
    Translator,
)
from edgebert_runtime.errors import InputError
from tests.runtime.fakes import fake_bundle, wordpiece

FIRST, SECOND = "the cat[SEP]on a mat", "[CLS] paris [MASK]"
SETTINGS: dict[str, Any] = {
    "labels": ["O", "B-A"],
    "problem_type": "single_label",
    "activation": "softmax",
    "mask_token": "[MASK]",
}
TWO: dict[str, tuple[int | str, ...]] = {"logits": ("batch", 2)}
SPANS: dict[str, tuple[int | str, ...]] = {f"{side}_logits": ("batch", "sequence") for side in ("start", "end")}
# Of a task: its engine, the outputs of its graph, a call, and whether it reads pairs.
CALLS: dict[str, tuple[Any, dict[str, tuple[int | str, ...]], Callable[..., object], bool]] = {
    "embed": (Embedder, {"sentence_embedding": ("batch", 2)}, lambda e, **o: e.embed([FIRST], **o), False),
    "classify": (Classifier, TWO, lambda e, **o: e.classify([FIRST], **o), False),
    "next-sentence": (Classifier, TWO, lambda e, **o: e.classify([FIRST], [SECOND], **o), True),
    "rerank": (Reranker, TWO, lambda e, **o: e.rerank(FIRST, [SECOND], **o), True),
    "multiple-choice": (
        MultipleChoice,
        {"logits": ("batch", 1)},
        lambda e, **o: e.choose(FIRST, [SECOND, "a"], **o),
        True,
    ),
    "tag": (Tagger, {"logits": ("batch", "sequence", 2)}, lambda e, **o: e.tag([FIRST], **o), False),
    "answer": (Answerer, SPANS, lambda e, **o: e.answer(FIRST, SECOND, **o), True),
}


class Recorder:
    """A session that keeps the rows that it reads, and answers zeros."""

    def __init__(self, outputs: dict[str, tuple[int | str, ...]]) -> None:
        self.outputs, self.rows = outputs, list[list[int]]()

    def run(self, output_names: Any, feeds: Any) -> Any:
        ids, mask = feeds["input_ids"], feeds["attention_mask"]
        self.rows += [row[: length.sum()].tolist() for row, length in zip(ids, mask, strict=True)]
        sizes: dict[int | str, Any] = {"batch": len(ids), "sequence": ids.shape[1]}
        return [np.zeros([sizes.get(size, size) for size in shape], np.float32) for shape in self.outputs.values()]


def with_mask() -> Any:
    """Return a WordPiece whose special tokens are declared, as transformers saves them."""
    tokenizer = wordpiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return tokenizer


@pytest.mark.parametrize("task", CALLS)
def test_every_task_reads_what_transformers_reads(task: str, tmp_path: Path) -> None:
    kind, outputs, call, reads_pairs = CALLS[task]
    bundle = fake_bundle(tmp_path, task, outputs, SETTINGS if task != "embed" else {}, with_mask())
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    pair = (FIRST, SECOND) if reads_pairs else (FIRST,)
    for special in (True, False):
        session = Recorder(outputs)
        engine = kind(bundle, session=session)
        call(engine, **({"special_tokens": True} if special else {}))
        assert theirs(*pair, split_special_tokens=not special)["input_ids"] in session.rows
    with pytest.raises(InputError, match="special_tokens='yes' is not True or False"):
        call(engine, special_tokens="yes")


@pytest.fixture(scope="module")
def generator(task_bundle: Callable[[str], Path]) -> Generator:
    return Generator(Bundle.open(task_bundle("generate")))


def test_prompts_and_scores_read_special_tokens(generator: Generator) -> None:
    text, end = "the cat<|endoftext|>sat", generator._tokenizer.inner.token_to_id("<|endoftext|>")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(generator.bundle.path / "tokenizer.json"))
    ids = theirs(text)["input_ids"]
    assert end in ids
    options: Any = {"max_new_tokens": 4}
    expected = generator.generate([ids], **options)
    assert generator.generate([text], special_tokens=True, **options) == expected
    assert generator.generate([text], **options) != expected
    assert "".join(generator.stream(text, special_tokens=True, **options)) == expected[0].text
    assert generator.score([text], special_tokens=True) == generator.score([ids])
    assert len(generator.score([text])[0].tokens) > len(ids)
    assert generator.prefix(text, special_tokens=True).ids == tuple(ids)


def test_sources_and_targets_read_special_tokens(translator_bundle: Callable[..., Path]) -> None:
    engine = Translator(Bundle.open(translator_bundle("cpu")))
    text = "the cat</s> sat"
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(engine.bundle.path / "tokenizer.json"))
    ids = theirs(text)["input_ids"]
    expected = engine.translate([ids], max_new_tokens=4)
    assert engine.translate([text], max_new_tokens=4, special_tokens=True) == expected
    target = theirs("a</s>", add_special_tokens=False)["input_ids"]
    (scored,) = engine.score([(text, "a</s>")], special_tokens=True)
    assert list(scored.tokens)[: len(target)] == target
    assert "".join(engine.stream(text, max_new_tokens=4, special_tokens=True)) == expected[0].text


def test_masks_may_stand_beside_other_special_tokens(task_bundle: Callable[[str], Path]) -> None:
    engine = MaskFiller(Bundle.open(task_bundle("fill-mask")))
    text = "the cat [SEP] the [MASK]"
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(engine.bundle.path / "tokenizer.json"))
    ids = theirs(text)["input_ids"]
    (((read, *_),),) = engine.fill([text], special_tokens=True)
    (((given_ids, *_),),) = engine.fill([ids])
    assert (read.token_id, read.score) == (given_ids.token_id, given_ids.score)
    assert read.text.startswith("the cat [SEP] the")


def test_threads_and_copies_share_the_switch(task_bundle: Callable[[str], Path]) -> None:
    engine = Embedder(Bundle.open(task_bundle("embed")))
    text, switches = "the cat [SEP] sat", [True, False] * 20
    expected = {special: engine.embed([text], special_tokens=special)[0] for special in (True, False)}
    assert not np.allclose(expected[True], expected[False])
    again = pickle.loads(pickle.dumps(engine))
    with ThreadPoolExecutor(8) as pool:
        for special, (vector,) in zip(
            switches, pool.map(lambda special: again.embed([text], special_tokens=special), switches), strict=True
        ):
            np.testing.assert_array_equal(vector, expected[special])


def test_the_second_tokenizer_is_made_when_it_is_needed(task_bundle: Callable[[str], Path]) -> None:
    engine = Embedder(Bundle.open(task_bundle("embed")))
    engine.embed(["the [SEP]"])
    assert "with_special_tokens" not in vars(engine._tokenizer)
    engine.embed(["the [SEP]"], special_tokens=True)
    assert "with_special_tokens" in vars(engine._tokenizer)
