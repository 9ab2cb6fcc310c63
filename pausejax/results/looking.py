"""A study's folder as a plan looks at it: nothing in it changes."""

from pausejax.results import labels, layouts, store
from pausejax.results.folder import Folder
from pausejax.results.stores import Contents, MemoryStore
from pausejax.study.study import Plan


class LookedAt(MemoryStore):
    """What a folder holds; what is added to it stays in memory.

    Args:
      folder: of the study; it need not be there.
    """

    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self._folder = folder
        self._layouts, self._fits = layouts.read(folder), layouts.fits(folder)

    def prepare(self, plan: Plan, *, grows: bool = False) -> Contents:
        """Says what the folder holds; as `store.look`."""
        return store.look(self._folder, plan, grows=grows)

    def has_begun(self, plan: Plan) -> bool:
        """Whether the folder's study has the very spec of a plan, and not one that it adds runs to."""
        try:
            return self._folder.read(store.SPEC) == labels.spec_text(plan).encode()
        except OSError:
            return False
