// SPDX-License-Identifier: BSD-3-Clause
// The order of what the search finds. A page answers a question; the objects of the
// reference come behind the pages, and pages about the project behind the others.
var Scorer = {
    objNameMatch: 8,
    objPartialMatch: 4,
    objPrio: { 0: 0, 1: -2, 2: -4 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
    score: ([docname, _title, _anchor, _descr, score, _filename, kind]) => {
        // Words that docs/conf.py names for a page.
        if (kind === "index") {
            return score;
        }
        // A heading that has all words of the question in their order.
        if (kind === "title") {
            score += 20;
        }
        if (kind === "object") {
            return score - 10;
        }
        if (/^(design|hacking|benchmarks|site\/)/.test(docname)) {
            return score / 4;
        }
        return docname.startsWith("reference/") ? score / 2 : score;
    },
};
