// Package brew finds what Homebrew installed: formulae by the receipts in the Cellar, and casks by
// the metadata and files in the Caskroom.
//
// It reads no tap and contacts no server: it uses only the names of directories and local files.
//
// Invariant: name and version are those of the directories NAME/VERSION below Cellar or Caskroom,
// as Homebrew itself lists them, with the revision.
package brew

import (
	"context"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// maxFormulaBytes is how many bytes of a formula are read for its license.
const maxFormulaBytes = 256 << 10

// Formulae finds formulae.
type Formulae struct{}

var _ catalog.Extractor = Formulae{}

// Name returns the name of the extractor in warnings.
func (Formulae) Name() string { return "brew/formula" }

// Patterns selects receipts.
func (Formulae) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"INSTALL_RECEIPT.json"}, PartialRead: true}
}

// FileRequired accepts Cellar/NAME/VERSION/INSTALL_RECEIPT.json.
func (Formulae) FileRequired(p string) bool {
	_, _, rest, ok := splitKeg(p, "Cellar")
	return ok && rest == "INSTALL_RECEIPT.json"
}

// splitKeg splits a path below a directory of formulae: NAME/VERSION/ and the rest.
func splitKeg(p, dir string) (name, version, rest string, ok bool) {
	i := strings.LastIndex("/"+p, "/"+dir+"/")
	if i < 0 {
		return "", "", "", false
	}
	parts := strings.SplitN(p[i+len(dir)+1:], "/", 3)
	if len(parts) < 3 || parts[0] == "" || parts[1] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// ReadsCompanion accepts installed formulae.
func (Formulae) ReadsCompanion(p string) bool {
	return strings.HasSuffix(p, ".rb") && path.Base(path.Dir(p)) == ".brew"
}

// Extract takes name and version from the path. The license is in the installed formula.
func (Formulae) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	name, version, _, _ := splitKeg(f.Path, "Cellar")
	p := catalog.Package{Kind: catalog.Brew, Name: name, Version: version}
	p.Licenses = formulaLicenses(f.Tree(), path.Join(path.Dir(f.Path), ".brew", name+".rb"))
	return []catalog.Package{p}, nil
}

// licenseLine matches a line such as: license "MIT", license any_of: ["MIT", "Apache-2.0"]. Its
// arguments are texts or symbols.
var (
	licenseLine  = regexp.MustCompile(`(?m)^\s{2}license\s+(.+(?:\n\s{4,}.+|\n\s{2}\])*)`)
	quotedString = regexp.MustCompile(`"([^"\n]{1,100})"`)
)

// formulaLicenses reads the licenses of a formula; a missing formula has none.
func formulaLicenses(tree fs.FS, name string) []string {
	file, err := tree.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(file, maxFormulaBytes))
	if err != nil {
		return nil
	}
	m := licenseLine.FindSubmatch(data)
	if m == nil {
		return nil
	}
	var out []string
	for _, q := range quotedString.FindAllSubmatch(m[1], 20) {
		out = append(out, string(q[1]))
	}
	return out
}
