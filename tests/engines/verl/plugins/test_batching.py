"""The CPU rollout's scheduler on a real small transformers model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from sweep.engines.verl.plugins.batching import Batcher, Request  # noqa: E402
from sweep.engines.verl.plugins.sampling import Sampling  # noqa: E402

VOCABULARY = 50
NO_END = frozenset[int]()


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        attn_implementation="sdpa",
    )
    return transformers.Qwen2ForCausalLM(config).eval()


def batcher(model: torch.nn.Module, seqs: int = 8, tokens: int = 512, ends: frozenset[int] = NO_END) -> Batcher:
    return Batcher(model, ends, VOCABULARY, seqs, tokens)


def prompts(count: int) -> list[list[int]]:
    return [[(7 * i + 3 * j) % VOCABULARY for j in range(3 + i % 5)] for i in range(count)]


def requests(count: int, max_tokens: int = 10, sampling: Sampling | None = None) -> list[Request]:
    return [Request(p, max_tokens, seed, sampling or Sampling()) for seed, p in enumerate(prompts(count))]


def run(served: Batcher, asked: list[Request]) -> list[Request]:
    served.waiting.extend(asked)
    completed: list[Request] = []
    while not served.idle:
        completed += served.step()
    return completed


def test_greedy_tokens_are_those_of_transformers_own_generate(model: torch.nn.Module) -> None:
    asked = requests(6, sampling=Sampling(temperature=0.0))
    run(batcher(model, seqs=4), asked)
    for request in asked:
        whole = request.prompt.copy()
        for token in request.tokens:
            logits = model(input_ids=torch.tensor([whole])).logits[0, -1, :VOCABULARY]
            assert token == int(logits.argmax())
            assert request.log_probs[len(whole) - len(request.prompt)] == pytest.approx(
                float(logits.detach().double().log_softmax(-1)[token]), abs=1e-4
            )
            whole.append(token)


@pytest.mark.parametrize(("seqs", "tokens"), [(1, 512), (3, 512), (8, 16), (8, 9), (2, 3)])
def test_tokens_do_not_depend_on_the_limits_or_on_the_order_of_arrival(
    model: torch.nn.Module, seqs: int, tokens: int
) -> None:
    reference = {tuple(r.prompt): r.tokens for r in run(batcher(model), requests(9))}
    shuffled = list(reversed(requests(9)))
    assert {tuple(r.prompt): r.tokens for r in run(batcher(model, seqs, tokens), shuffled)} == reference


def test_requests_that_arrive_midway_join_the_running_ones(model: torch.nn.Module) -> None:
    reference = [r.tokens for r in requests_in_order(run(batcher(model), requests(5)))]
    served, asked, completed = batcher(model), requests(5), []
    for request in asked:
        served.waiting.append(request)
        completed += served.step()
        completed += served.step()
    while not served.idle:
        completed += served.step()
    assert [r.tokens for r in requests_in_order(completed)] == reference


def requests_in_order(completed: list[Request]) -> list[Request]:
    return sorted(completed, key=lambda r: r.seed)


@pytest.mark.parametrize(("seqs", "tokens", "most"), [(1, 512, 1), (3, 512, 3), (100, 512, 9)])
def test_no_more_sequences_run_than_both_limits_allow(
    model: torch.nn.Module, seqs: int, tokens: int, most: int
) -> None:
    served = batcher(model, seqs, tokens)
    run(served, requests(9))
    assert served.counts.most_running == most


def test_every_running_sequence_takes_one_token_of_the_budget(model: torch.nn.Module) -> None:
    served = batcher(model, seqs=8, tokens=5)
    run(served, [Request([i], 10, i, Sampling()) for i in range(9)])
    assert served.counts.most_running == 5


@pytest.mark.parametrize("tokens", [8, 16, 40])
def test_an_iteration_computes_no_more_tokens_than_its_budget(model: torch.nn.Module, tokens: int) -> None:
    served = batcher(model, seqs=8, tokens=tokens)
    seen: list[int] = []
    own_call = served.model.forward

    def counting_forward(*args: object, **kwargs: object) -> object:
        mask = kwargs["attention_mask"]
        seen.append(int(mask[:, -kwargs["input_ids"].shape[1] :].sum()))  # type: ignore[index, attr-defined]
        return own_call(*args, **kwargs)

    served.model.forward = counting_forward
    try:
        served.waiting.extend(requests(9))
        while not served.idle:
            seen.clear()
            served.step()
            assert sum(seen) <= tokens
    finally:
        served.model.forward = own_call


def test_a_prompt_longer_than_the_budget_is_read_in_pieces(model: torch.nn.Module) -> None:
    prompt = [i % VOCABULARY for i in range(20)]
    (whole,) = run(batcher(model), [Request(prompt, 6, 1, Sampling())])
    served = batcher(model, tokens=7)
    (pieces,) = run(served, [Request(prompt, 6, 1, Sampling())])
    assert pieces.tokens == whole.tokens
    assert served.counts.most_tokens == 7
    assert served.counts.iterations == 3 + 5  # the first token comes with the last piece


def test_both_limits_change_how_many_iterations_it_takes(model: torch.nn.Module) -> None:
    def iterations(seqs: int, tokens: int) -> int:
        served = batcher(model, seqs, tokens)
        run(served, requests(16))
        return served.counts.iterations

    assert iterations(1, 512) > iterations(4, 512) > iterations(16, 512)
    assert iterations(16, 8) > iterations(16, 32) > iterations(16, 512)


def test_a_response_ends_with_the_end_token_or_at_its_length(model: torch.nn.Module) -> None:
    free = run(batcher(model), requests(9, max_tokens=12))
    end = free[0].tokens[3]
    ended = run(batcher(model, ends=frozenset({end})), requests(9, max_tokens=12))
    for request in requests_in_order(ended):
        assert end not in request.tokens[:-1]
        assert request.tokens[-1] == end or len(request.tokens) == 12
    lengths = {len(r.tokens) for r in ended}
    assert len(lengths) > 1


def test_tokens_that_the_tokenizer_does_not_have_are_never_generated(model: torch.nn.Module) -> None:
    completed = run(batcher(model), requests(20, max_tokens=20))
    assert max(token for r in completed for token in r.tokens) < VOCABULARY


def test_counts_start_anew_when_taken(model: torch.nn.Module) -> None:
    served = batcher(model)
    run(served, requests(4, max_tokens=5))
    counts = served.take_counts()
    assert (counts.generated_tokens, counts.prompt_tokens) == (20, sum(map(len, prompts(4))))
    assert served.take_counts().generated_tokens == 0
