package truthtable

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
)

// databases are those that were built before, by directory; TestMain closes them.
var databases = map[string]*vulndb.DB{}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, db := range databases {
		db.Close()
	}
	os.Exit(code)
}

// database builds one from a directory of archives, with the real builder. The file is removed
// immediately, but stays readable while open.
func database(t *testing.T, folder string) *vulndb.DB {
	t.Helper()
	if db := databases[folder]; db != nil {
		return db
	}
	o := build.Options{Target: filepath.Join(t.TempDir(), "vuln.db")}
	for _, set := range AdvisorySets {
		o.Inputs = append(o.Inputs, filepath.Join(folder, set+".tar.zst"))
	}
	for _, set := range []string{CarriedSet, SwiftSet} {
		o.Inputs = append(o.Inputs, filepath.Join("testdata", set+".tar.zst"))
	}
	if _, err := build.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	db, err := vulndb.Open(o.Target)
	if err != nil {
		t.Fatal(err)
	}
	databases[folder] = db
	return db
}

// named returns the names that the naive matcher uses, and none returns no names.
func named(p catalog.Package) []cpe.Product {
	var out []cpe.Product
	for _, n := range productsOf(&p) {
		f := strings.Split(n+":", ":")
		out = append(out, cpe.Product{Vendor: f[0], Product: f[1], TargetSW: f[2], Curated: true})
	}
	return out
}

func none(catalog.Package) []cpe.Product { return nil }

// answer is the result of the real matcher for a package: the IDs that it finds, and which of them
// are unconfirmed.
type answer map[string]bool

// ask returns an answer for each package. Its index in the list distinguishes a package from others
// of its name and version.
func ask(t *testing.T, db *vulndb.DB, packages []catalog.Package, names func(catalog.Package) []cpe.Product) []answer {
	t.Helper()
	packages = slices.Clone(packages)
	out := make([]answer, len(packages))
	place := map[string]int{}
	for i := range packages {
		out[i] = answer{}
		packages[i].PURL = fmt.Sprint(i)
		place[packages[i].PURL] = i
	}
	result, err := match.Match(t.Context(), db, packages, match.Options{Products: names})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		out[place[f.Package.PURL]][f.Vulnerability.ID] = f.Unconfirmed
	}
	return out
}

// checkReal runs the matcher for every row and prints the share of correct answers by stratum.
func checkReal(t *testing.T, folder string) {
	t.Helper()
	db, all := database(t, folder), rows(t)
	var packages []catalog.Package
	for _, r := range all {
		packages = append(packages, r.Package)
	}
	type counts struct{ n, truePositive, falsePositive, falseNegative int }
	strata, order := map[string]*counts{}, []string{}
	for i, a := range ask(t, db, packages, nil) {
		r := &all[i]
		c := strata[r.Stratum]
		if c == nil {
			c = &counts{}
			strata[r.Stratum], order = c, append(order, r.Stratum)
		}
		unconfirmed, affected := a[r.Vulnerability]
		c.n++
		switch {
		case affected && r.Affected:
			c.truePositive++
		case affected:
			c.falsePositive++
		case r.Affected:
			c.falseNegative++
		}
		if affected != r.Affected || unconfirmed != r.Unconfirmed {
			t.Errorf("%v: the table says affected %v, unconfirmed %v; the matcher %v, %v\n\t%s: %s (%s)",
				r, r.Affected, r.Unconfirmed, affected, unconfirmed, r.Advisory, r.Field, r.Reason)
		}
	}
	t.Logf("%-12s %4s %9s %9s", "stratum", "n", "precision", "recall")
	for _, s := range order {
		c := strata[s]
		t.Logf("%-12s %4d %9.3f %9.3f", s, c.n, share(c.truePositive, c.falsePositive),
			share(c.truePositive, c.falseNegative))
	}
}

// share returns right divided by right plus wrong; with neither it returns 1.
func share(right, wrong int) float64 {
	if right+wrong == 0 {
		return 1
	}
	return float64(right) / float64(right+wrong)
}

func TestMatcherAgreesOnWhatIsCarried(t *testing.T) {
	checkReal(t, "testdata")
}

func TestMatcherAgreesOnEveryAdvisory(t *testing.T) {
	checkReal(t, shared(t))
}
