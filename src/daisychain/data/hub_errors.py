"""What went wrong at the hub, in words that say what to do."""

import contextlib
from collections.abc import Iterator

from daisychain.base.errors import DaisyError, DataError
from daisychain.data.hub_session import HubTrouble, causes, has_token, hub_endpoint, libraries

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


@contextlib.contextmanager
def told(dataset: str) -> Iterator[None]:
    """Turn what the hub's packages raise into a DataError, or into HubTrouble where another try may help."""
    try:
        yield
    except (HubTrouble, DaisyError):
        raise
    except Exception as error:  # the packages raise anything, wrapped in anything
        for cause in causes(error):
            if isinstance(cause, HubTrouble | DaisyError):
                raise cause from None
        raise DataError(_words(dataset, error)) from None


def _words(dataset: str, error: Exception) -> str:
    loaded = libraries()
    kinds = loaded.hub.errors
    about, endpoint = f"data set {dataset!r}", hub_endpoint()
    for cause in causes(error):
        if isinstance(cause, kinds.GatedRepoError):
            return f"{about} is gated: accept its terms on {endpoint}/datasets/{dataset}, then {LOG_IN}."
        if isinstance(cause, kinds.RevisionNotFoundError):
            return f"{about} has no such revision; give a branch, a tag or a commit that it has."
        if isinstance(cause, kinds.RepositoryNotFoundError | loaded.datasets.exceptions.DatasetNotFoundError):
            return not_found(dataset)
        if isinstance(cause, kinds.HfHubHTTPError) and cause.response is not None:
            return refused(dataset, cause.response.status_code)
    said = " ".join(str(error).split())
    if "scripts are no longer supported" in said:
        return (
            f"{about} is made by a program of its author, which is never run here; choose one of data files."
        )
    return f"{about} cannot be read: {said[:300].rstrip('.') or type(error).__name__}."


def not_found(dataset: str) -> str:
    """For a name that the hub does not know, or does not show to everybody."""
    why = "or your token does not open it" if has_token() else f"or it is private: {LOG_IN}"
    return f"data set {dataset!r} was not found at {hub_endpoint()}; check its name (owner/name), {why}."


def refused(dataset: str, status: int) -> str:
    """For an answer that another try would not change."""
    what = {401: "does not accept your token", 403: "does not let your token in"}.get(status)
    if what is None:
        return f"data set {dataset!r}: the hub answered {status}; choose another data set."
    return f"data set {dataset!r}: the hub {what} ({status}); {LOG_IN}."
