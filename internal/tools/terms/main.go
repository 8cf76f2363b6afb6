// Terms draws names and user-visible texts of the product by chance, as a table whose reader writes down what
// each means before looking it up. A name or text that is guessed wrong should be renamed or reworded.
//
//	terms [-seed 1] [-n 40] [-dir .]
//
// It parses files and does not type-check them. Tests and their packages, generated
// files and internal/tools are left out.
//
// Invariant: the table depends on the tree and the seed alone.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
)

// sample is a name or text with the place where it is declared.
type sample struct {
	kind  string // type, function, method, field, package, file; error, log, help, metric, portal, API
	text  string
	place string // package for a name, file and line for a text
	decl  string // first line of the declaration; "" for a text
}

func main() {
	seed := flag.Uint64("seed", 1, "seed of the draw")
	n := flag.Int("n", 40, "names and texts to draw")
	dir := flag.String("dir", ".", "directory of the module")
	flag.Parse()

	if err := run(os.Stdout, *dir, *seed, *n); err != nil {
		fmt.Fprintln(os.Stderr, "terms:", err)
		os.Exit(1)
	}
}

// run writes both tables.
func run(to io.Writer, dir string, seed uint64, n int) error {
	names, texts, err := collect(dir)
	if err != nil {
		return err
	}

	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same seed draws the same names
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "# Names (seed %d, %d of %d)\n\n", seed, min(n, len(names)), len(names))
	fmt.Fprint(w, "| | kind | name | package | declaration | meaning |\n|---|---|---|---|---|---|\n")
	for i, s := range draw(random, names, n) {
		fmt.Fprintf(w, "| %d | %s | `%s` | %s | `%s` | |\n", i+1, s.kind, s.text, s.place, cell(s.decl))
	}
	fmt.Fprintf(w, "\n# Texts (seed %d, %d of %d)\n\n", seed, min(n, len(texts)), len(texts))
	fmt.Fprint(w, "| | kind | text | place | meaning |\n|---|---|---|---|---|\n")
	for i, s := range draw(random, texts, n) {
		fmt.Fprintf(w, "| %d | %s | %s | %s | |\n", i+1, s.kind, cell(s.text), s.place)
	}
	return w.Flush()
}

// draw returns n different samples by chance.
func draw(random *rand.Rand, from []sample, n int) []sample {
	out := make([]sample, 0, min(n, len(from)))
	for _, i := range random.Perm(len(from))[:min(n, len(from))] {
		out = append(out, from[i])
	}
	return out
}

// cell escapes a text for a cell of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "`", "'").Replace(s)
}
