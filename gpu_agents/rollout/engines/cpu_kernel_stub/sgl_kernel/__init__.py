"""Stands in for SGLang's compiled kernel package, which is not published for CPUs without AMX.

SGLang imports names from it on every platform, and on such a CPU calls none of them: its own torch code
does the work. This module satisfies the import and raises if a name is ever called.

Every process that computes imports it, so it is also where pinned memory is turned off.
"""

import unpinned_memory  # type: ignore[import-not-found]  # it is beside this package on the engine's path

unpinned_memory.install()


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*arguments, **options):  # type: ignore[no-untyped-def]
        raise NotImplementedError(
            f"sgl_kernel.{name} was called, but this CPU engine runs with a stand-in that has no kernels. "
            "Start the engine with --attention-backend torch_native, or install SGLang's CPU kernel"
        )

    return missing
