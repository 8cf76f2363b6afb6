package truthtable

import (
	"os"
	"path/filepath"
	"testing"
)

// shared returns the directory of the whole archives, and skips the test where it is missing.
func shared(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SHARED")
	if dir == "" {
		t.Skip("SHARED does not name the folder with the whole sets of advisories")
	}
	return filepath.Join(dir, "data", "vuln")
}

func checkNaive(t *testing.T, folder string) {
	t.Helper()
	n, err := readNaive(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows(t) {
		affected, unconfirmed := n.judge(&r.Package, r.Vulnerability)
		if affected != r.Affected || unconfirmed != r.Unconfirmed {
			t.Errorf("%v: the table says affected %v, unconfirmed %v; the naive matcher %v, %v\n\t%s: %s (%s)",
				&r, r.Affected, r.Unconfirmed, affected, unconfirmed, r.Advisory, r.Field, r.Reason)
		}
	}
}

func TestNaiveMatcherAgreesOnEveryAdvisory(t *testing.T) {
	checkNaive(t, shared(t))
}

func TestNaiveMatcherAgreesOnWhatIsCarried(t *testing.T) {
	checkNaive(t, "testdata")
}
