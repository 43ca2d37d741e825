# SPDX-License-Identifier: BSD-3-Clause
"""Build the extension modules of this folder: see README.md.

A module that calls libumx is compiled with ucp's headers and linked to its library,
which the running ucp has loaded already: so ``import ucp`` comes before the module.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

import ucp


def native(name: str, source: str) -> Extension:
    return Extension(
        name,
        [source],
        include_dirs=[ucp.get_include()],
        library_dirs=[ucp.get_library_dir()],
        runtime_library_dirs=[ucp.get_library_dir()],
        libraries=["umx"],
    )


setup(
    name="native",
    ext_modules=[
        *cythonize(native("batch", "batch.pyx")),
        native("echo_layer", "echo_layer.c"),
    ],
)
