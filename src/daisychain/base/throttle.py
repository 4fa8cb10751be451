"""Rates: token buckets, one alone or one a key."""


class Bucket:
    """Holds up to `burst` tokens and fills at `per_s`. Time is passed in."""

    def __init__(self, burst: float, per_s: float, now_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._tokens = burst
        self._at_s = now_s

    def take(self, now_s: float, tokens: float = 1.0) -> float:
        """Take tokens and return 0, or take none and return the seconds until there are enough."""
        self._fill(now_s)
        missing = tokens - self._tokens
        if missing > 0:
            return missing / self._per_s
        self._tokens -= tokens
        return 0.0

    def give_back(self, tokens: float = 1.0) -> None:
        """Undo a `take`."""
        self._tokens = min(self._burst, self._tokens + tokens)

    def is_full(self, now_s: float) -> bool:
        self._fill(now_s)
        return self._tokens >= self._burst

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(0.0, now_s - self._at_s) * self._per_s)
        self._at_s = now_s


class Throttle:
    """A bucket a key. A full bucket is forgotten, so that memory follows what is going on."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._buckets: dict[str, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now_s: float, tokens: float = 1.0) -> float:
        """As `Bucket.take`, of the key's bucket."""
        bucket = self._buckets.setdefault(key, Bucket(self._burst, self._per_s, now_s))
        return bucket.take(now_s, tokens)

    def give_back(self, key: str, tokens: float = 1.0) -> None:
        """Undo a `take`."""
        if key in self._buckets:
            self._buckets[key].give_back(tokens)

    def forget(self, now_s: float) -> None:
        """Drop the buckets that are full."""
        for key in [key for key, bucket in self._buckets.items() if bucket.is_full(now_s)]:
            del self._buckets[key]
