"""What is kept is made once, and the oldest goes first."""

from conformance.execution.trial.fill_groups import Kept


def test_the_oldest_go_when_the_bytes_are_more_than_the_limit():
    made = []

    def get(key):
        return kept.get(key, lambda: made.append(key) or key)

    kept = Kept(10, len)
    assert [get(key) for key in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa")] == ["aaaa", "bbbb", "aaaa", "cccc", "aaaa"]
    assert made == ["aaaa", "bbbb", "cccc"], "bbbb was the oldest"
    get("bbbb")
    assert made[3:] == ["bbbb"]
    get("d" * 11)
    get("d" * 11)
    assert made[4:] == ["d" * 11] * 2, "too large to be kept"
    get("bbbb")
    assert len(made) == 6, "and no reason to give up another"
    kept.forget()
    get("bbbb")
    assert made[6:] == ["bbbb"]
