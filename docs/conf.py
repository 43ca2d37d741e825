# SPDX-License-Identifier: BSD-3-Clause
"""The site that `make docs` builds in build/docs from the pages in this folder.

Pages are Markdown that a code host shows as well. The reference is generated: of
Python from the docstrings of the installed package, of C from include/umx.
"""

import os
import re
import sys
from pathlib import Path

from docutils import nodes

import ucp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))

project = "ucp"
author = "the ucp authors"
project_copyright = "the ucp authors"
version = release = ucp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docs_headers",
    "docs_python",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["changes", "_build"]

myst_enable_extensions = ["colon_fence", "attrs_block"]
myst_heading_anchors = 4
# Listings name C functions, options and paths; words between backquotes are code.
default_role = "code"
highlight_language = "none"
smartquotes = False

# Names that others define.
nitpicky = True
nitpick_ignore_regex = [
    ("c:identifier", r"u?int\d+_t|size_t|ptrdiff_t|uintptr_t|sockaddr|umi_guard"),
    # Annotations name types of others, and private ones; a docstring's "Raises"
    # may be any words.
    ("py:class", r"(?!ucp\.[A-Z]).*"),
    ("py:exc", r".*"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "inherited-members": "object, Exception, OSError, tuple, str, int",
}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"ucp {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
html_search_scorer = str(HERE / "site/scorer.js")

# ---- what is below a page in the navigation, and what leads to it --------------
# These are no directives on the pages, since a code host would show them as text.

BELOW = {
    "tutorial/index": [
        *("tutorial/1-hello", "tutorial/2-arrays", "tutorial/3-many-peers"),
        *("tutorial/4-errors", "tutorial/5-dask", "tutorial/6-ranks"),
        *("tutorial/7-tables", "tutorial/8-remote-memory"),
    ],
    "howto/index": [
        *("howto/from-ucx-py", "howto/from-ucxx", "howto/from-mpi4py"),
        *("howto/from-torch-distributed", "howto/containers", "howto/kubernetes"),
        *("howto/firewalls", "howto/wireguard", "howto/reconnect"),
        "howto/one-to-many",
    ],
    "concepts": ["lifetimes"],
    "howto/gpu": ["devices", "topology"],
    "performance": ["benchmarks", "site/benchmarks"],
    "hacking": ["design", "site/contributing", "site/security-policy", "site/conduct"],
}

# Words of a stranger, for which the search shows the page first.
SEARCHED = {
    "tuning": ["slow", "why is it slow", "make it faster", "speed up"],
    "debugging": ["hang", "why does it hang", "deadlock", "stuck"],
    "run": ["start 4 processes", "start processes", "launch", "mpirun", "mpiexec"],
    "howto/gpu": ["send a CuPy array", "CuPy", "GPU", "torch tensor", "CUDA"],
    "reference/c/memory": ["C API of put", "umx put", "put in C"],
    "py-api": ["put", "get", "send", "recv"],
    "observing": ["metrics", "Prometheus", "tracing", "monitoring"],
    "install": ["pip install", "InfiniBand", "build from source"],
    "security": ["encryption", "token", "password"],
    "communicator": ["MPI", "mpi4py", "allreduce", "broadcast"],
    "dask": ["LocalCluster", "distributed"],
    "shuffle": ["outputs of maps", "map outputs"],
    "lifetimes": ["lifetime", "garbage collection", "forgotten close", "ownership"],
}

# ---- links that leave this folder ---------------------------------------------
# On a code host a page links to files beside docs/. On the site these are pages
# that include the file.

OUTSIDE = [
    (r"\.\./README\.md(?:#[\w-]+)?", "index.md"),
    (r"\.\./CHANGELOG\.md", "site/changelog.md"),
    (r"\.\./CONTRIBUTING\.md", "site/contributing.md"),
    (r"\.\./SECURITY\.md", "site/security-policy.md"),
    (r"\.\./CODE_OF_CONDUCT\.md", "site/conduct.md"),
    (r"\.\./benchmarks/README\.md", "site/benchmarks.md"),
    (r"\.\./examples(?:/native)?/?", "site/examples.md"),
    (r"\.\./examples/([\w/]+)\.(\w+)", r"site/examples.md#\1\2"),
]


def take_in(app, docname, source):
    """Replace an include of a file beside docs/ by its text, with its links."""
    match = re.match(r"```\{include\} \.\./\.\./(\S+)\n", source[0])
    if match is None:
        return
    path = HERE.parent / match[1]

    def link(found):
        target, mark, anchor = found[1].partition("#")
        place = os.path.relpath(path.parent / target, HERE / "site")
        return f"]({place}{mark}{anchor})"

    text = path.read_text()
    source[0] = re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", link, text)


def lead_inside(app, docname, source):
    """Replace targets of links to files outside of docs/ by pages of the site."""
    up = "../" * docname.count("/")
    for pattern, page in OUTSIDE:
        link = re.compile(rf"\]\({up}{pattern}\)")
        source[0] = link.sub(rf"]({up}{page})", source[0])


def show_examples(app, docname, source):
    """Add the text of each example to the page that describes them."""
    if docname != "site/examples":
        return
    for path in sorted((HERE.parent / "examples").rglob("*.*")):
        language = LANGUAGES.get(path.suffix)
        if language is None:
            continue
        name = path.relative_to(HERE.parent / "examples")
        source[0] += f"\n## {name}\n\n```{{literalinclude}} ../../examples/{name}\n"
        source[0] += f":language: {language}\n```\n"


def order_pages(app, docname, source):
    """Add the pages below a page to the navigation, and the words it is searched by."""
    if docname in BELOW:
        pages = "\n".join(f"/{page}" for page in BELOW[docname])
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
    if docname in SEARCHED:
        is_markdown = Path(app.env.doc2path(docname)).suffix == ".md"
        begin, end = (
            ("```{index} ", "\n```\n") if is_markdown else (".. index:: ", "\n")
        )
        words = ", ".join(f"! {word}" for word in SEARCHED[docname])
        source[0] += f"\n\n{begin}{words}{end}"


def name_pages(app, doctree, docname):
    """Show the title of a page instead of its file's name as the text of a link."""
    for link in doctree.findall(nodes.reference):
        name = link.astext()
        if link.get("internal") and re.fullmatch(r"[\w./-]+\.md", name):
            place = link["refuri"].partition("#")[0].removesuffix(".html")
            page = os.path.normpath(f"{os.path.dirname(docname)}/{place}".lstrip("/"))
            title = app.env.titles.get(page)
            if title is not None:
                link.children = [nodes.inline("", title.astext())]


def link_calls(app, doctree, docname):
    """Lead from names in a column of a table to the reference.

    The head of the column names a class or a module, as in "calls of `ucp.Worker`".
    """
    objects = app.env.domains["py"].objects
    for table in doctree.findall(nodes.table):
        for row in table.findall(nodes.row):
            for entry, owner in zip(row, owners(table, objects), strict=False):
                for literal in list(entry.findall(nodes.literal)) if owner else []:
                    name = re.match(r"(?:await )?([\w.]+)", literal.astext())
                    found = name and objects.get(f"{owner}.{name[1]}")
                    if not found or isinstance(literal.parent, nodes.reference):
                        continue
                    place = app.builder.get_relative_uri(docname, found.docname)
                    link = nodes.reference("", "", internal=True)
                    link["refuri"] = f"{place}#{found.node_id}"
                    literal.replace_self(link)
                    link += literal


def owners(table, objects):
    """Return the class or module that the head of each column names, or None."""
    found = []
    for head in table.findall(nodes.thead):
        for entry in head[0]:
            named = [literal.astext() for literal in entry.findall(nodes.literal)]
            found.append(next((n for n in named if n in objects or n == "ucp"), None))
    return found


def break_names(app, pagename, templatename, context, doctree):
    """Let long names in tables go on in the next line behind their signs."""

    def in_cell(cell):
        return re.sub(r'(?<=<span class="pre">)[^<]*', in_name, cell[0])

    def in_name(name):
        if len(name[0]) <= 20:
            return name[0]
        return re.sub(r"(?<=\w)([_.(,=/]+)(?=[\w&])", r"\1<wbr>", name[0])

    if context.get("body"):
        context["body"] = re.sub(
            r"<td\b.*?</td>", in_cell, context["body"], flags=re.DOTALL
        )


LANGUAGES = {
    ".c": "c",
    ".cpp": "cpp",
    ".cmake": "cmake",
    ".py": "python",
    ".pyx": "cython",
}


def setup(app):
    app.connect("source-read", take_in)
    app.connect("source-read", lead_inside)
    app.connect("source-read", show_examples)
    app.connect("source-read", order_pages)
    app.connect("doctree-resolved", name_pages)
    app.connect("doctree-resolved", link_calls)
    app.connect("html-page-context", break_names)
