"""A kept value is made once, and the oldest goes first."""

from conformance.execution.trial.fill_groups import Kept


def test_the_oldest_go_when_the_bytes_are_more_than_the_limit():
    computed = []

    def get(key):
        return kept.get(key, lambda: computed.append(key) or key)

    kept = Kept(10, len)
    assert [get(key) for key in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa")] == ["aaaa", "bbbb", "aaaa", "cccc", "aaaa"]
    assert computed == ["aaaa", "bbbb", "cccc"], "bbbb was the oldest"
    get("bbbb")
    assert computed[3:] == ["bbbb"]
    get("d" * 11)
    get("d" * 11)
    assert computed[4:] == ["d" * 11] * 2, "too large to be kept"
    get("bbbb")
    assert len(computed) == 6, "and no reason to give up another"
    kept.forget()
    get("bbbb")
    assert computed[6:] == ["bbbb"]
