"""Cuts a selection of cases into shards: the same for equal inputs, on every machine."""
