// Package brew finds what Homebrew installed: formulae by the receipts in the Cellar, and
// casks by what it keeps in the Caskroom.
//
// It asks no tap and no server: a package is what its directories say.
//
// Invariant: name and version are those of the directories NAME/VERSION below Cellar or
// Caskroom, as Homebrew itself lists them, with the revision.
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

// maxFormula is how much of a formula is read for its license.
const maxFormula = 256 << 10

// Formulae finds formulae.
type Formulae struct{}

var _ catalog.Extractor = Formulae{}

// Name is told in warnings.
func (Formulae) Name() string { return "brew/formula" }

// Patterns asks for receipts.
func (Formulae) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: []string{"INSTALL_RECEIPT.json"}, Parts: true}
}

// FileRequired takes Cellar/NAME/VERSION/INSTALL_RECEIPT.json.
func (Formulae) FileRequired(p string) bool {
	_, _, rest, ok := keg(p, "Cellar")
	return ok && rest == "INSTALL_RECEIPT.json"
}

// keg cuts a path below FOLDER/NAME/VERSION/.
func keg(p, folder string) (name, version, rest string, ok bool) {
	i := strings.LastIndex("/"+p, "/"+folder+"/")
	if i < 0 {
		return "", "", "", false
	}
	parts := strings.SplitN(p[i+len(folder)+1:], "/", 3)
	if len(parts) < 3 || parts[0] == "" || parts[1] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// Extract tells what the path says. The license stands in the formula that was installed.
func (Formulae) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	name, version, _, _ := keg(f.Path, "Cellar")
	p := catalog.Package{Kind: catalog.Brew, Name: name, Version: version}
	p.Licenses = formulaLicenses(f.Tree(), path.Join(path.Dir(f.Path), ".brew", name+".rb"))
	return []catalog.Package{p}, nil
}

// license is a line such as: license "MIT", license any_of: ["MIT", "Apache-2.0"]. What
// follows is a text or a symbol each.
var (
	license = regexp.MustCompile(`(?m)^\s{2}license\s+(.+(?:\n\s{4,}.+|\n\s{2}\])*)`)
	quoted  = regexp.MustCompile(`"([^"\n]{1,100})"`)
)

// formulaLicenses reads the licenses of a formula; a formula that is not there has none.
func formulaLicenses(tree fs.FS, name string) []string {
	file, err := tree.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(file, maxFormula))
	if err != nil {
		return nil
	}
	m := license.FindSubmatch(data)
	if m == nil {
		return nil
	}
	var out []string
	for _, q := range quoted.FindAllSubmatch(m[1], 20) {
		out = append(out, string(q[1]))
	}
	return out
}
