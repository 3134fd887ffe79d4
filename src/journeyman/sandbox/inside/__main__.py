"""`python -I path/to/inside MODULE [ARGUMENT …]`: this folder as a package of its own, without its parent on the path."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

NAME = "journeyman_inside"
"""Unlike anything that the code might import."""


def main() -> None:
    here = Path(__file__).resolve().parent
    # Running a folder puts it on the path, where its `wire` or `files` would shadow those of the code.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    spec = spec_from_file_location(NAME, here / "__init__.py", submodule_search_locations=[str(here)])
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)
    import_module(f"{NAME}.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
